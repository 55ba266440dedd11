"""The transports and clients for httpx2 and httpx, before a transport that sends nothing."""

import asyncio
import copy
import errno
import io
import pickle
import ssl
import threading
import time
from functools import partial

import httpx
import httpx2
import pytest

from headgate.agent import Courtesy, RetryLater, httpx_client
from headgate.agent.httpx import AsyncClient, AsyncTransport, Client, Transport
from tests.unit.agent.transport_laws import URL, Script, TransportLaws, caused, frozen

pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture(params=[httpx2, httpx], ids=["httpx2", "httpx"])
def library(request):
    return request.param


class Body(httpx2.SyncByteStream, httpx2.AsyncByteStream, httpx.SyncByteStream, httpx.AsyncByteStream):
    """What remembers how far it was read, and whether it was closed."""

    def __init__(self, *chunks: bytes | BaseException) -> None:
        self.chunks = list(chunks)
        self.read = 0
        self.is_closed = False

    def __iter__(self):
        for chunk in self.chunks:
            if isinstance(chunk, BaseException):
                raise chunk
            self.read += len(chunk)
            yield chunk

    async def __aiter__(self):
        for chunk in self:
            yield chunk

    def close(self):
        self.is_closed = True

    async def aclose(self):
        self.is_closed = True


class Wire(Script):
    """A transport of both kinds."""

    def __init__(self, *answers) -> None:
        super().__init__(*answers)
        self.calls = []

    def handle_request(self, request):
        return self.answer(request)

    async def handle_async_request(self, request):
        return self.answer(request)

    def __enter__(self):
        self.calls.append("enter")

    def __exit__(self, *raised):
        self.calls.append(("exit", *raised))

    def close(self):
        self.calls.append("close")

    async def __aenter__(self):
        self.calls.append("enter")

    async def __aexit__(self, *raised):
        self.calls.append(("exit", *raised))

    async def aclose(self):
        self.calls.append("close")


class Sending:
    """Sends requests through a transport of either kind."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def send(self, courtesy, wire, request):
        (got,) = self.send_all(courtesy, wire, [request])
        if isinstance(got, BaseException):
            raise got
        return got

    def send_all(self, courtesy, wire, requests):
        """Send one after the other, in one task; give the responses, and the errors instead of those there are not."""

        async def one(request):
            try:
                if self.is_async:
                    return await AsyncTransport(courtesy, wire).handle_async_request(request)
                return Transport(courtesy, wire).handle_request(request)
            except BaseException as error:
                return error

        async def all_of_them():
            return [await one(request) for request in requests]

        return asyncio.run(all_of_them())


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def sending(request):
    return Sending(request.param)


def rest(library, seconds=60, **options):
    return library.Response(200, headers={"Retry-After": str(seconds)}, **options)


def test_the_error_can_be_copied_with_its_request(library):
    polite = frozen()
    Transport(polite, Wire(rest(library))).handle_request(library.Request("GET", URL))
    with pytest.raises(RetryLater) as caught:
        Transport(polite).handle_request(library.Request("GET", URL))
    held = caught.value
    held.add_note("seen")
    for again in (pickle.loads(pickle.dumps(held)), copy.copy(held)):
        assert type(again) is type(held)
        assert (str(again), again.release_time, again.reason, again.target, again.args) == (
            str(held), held.release_time, held.reason, held.target, held.args,
        )  # fmt: skip
        assert (again.request.url, again.__notes__) == (held.request.url, ["seen"])


def test_a_body_read_by_a_hook_can_be_sent_again(library):
    wire = Wire(library.Response(503), library.Response(200))
    request = library.Request("PUT", URL, content=iter([b"on", b"ce"]))
    request.read()
    assert Transport(frozen(retry=1), wire).handle_request(request).status_code == 200


@pytest.mark.parametrize(
    ("length", "chunks", "read"),
    [
        ("5", (b"he", b"llo"), 5),
        ("65536", (bytes(65_536),), 65_536),
        ("65537", (bytes(65_537),), 0),
        ("9" * 5000, (b"hello",), 0),
        ("-1", (b"hello",), 0),
        (None, (b"hello",), 0),
        ("5", (b"he", OSError("broken")), 2),
        ("5", (b"he", httpx2.ReadTimeout("slow"), b"llo"), 2),
    ],
)
def test_a_refused_body_is_read_only_if_it_is_short_and_always_closed(library, sending, length, chunks, read):
    body = Body(*chunks)
    refused = library.Response(503, headers={"Content-Length": length} if length else {}, stream=body)
    wire = Wire(refused, library.Response(200))
    assert sending.send(frozen(retry=1), wire, library.Request("GET", URL)).status_code == 200
    assert (body.read, body.is_closed, refused.is_closed) == (read, True, True)


def test_an_error_in_closing_a_refused_response_is_ignored(library, sending):
    class Broken(Body):
        def close(self):
            raise OSError("broken")

        async def aclose(self):
            raise OSError("broken")

    wire = Wire(library.Response(503, stream=Broken()), library.Response(200))
    assert sending.send(frozen(retry=1), wire, library.Request("GET", URL)).status_code == 200


def test_the_body_of_a_returned_response_is_neither_read_nor_closed(library, sending):
    body = Body(b"hello")
    response = library.Response(503, headers={"Content-Length": "5"}, stream=body)
    assert sending.send(frozen(), Wire(response), library.Request("GET", URL)) is response
    assert (body.read, body.is_closed) == (0, False)


def test_a_request_cancelled_while_a_refused_body_is_read_closes_it(library):
    class Slow(Body):
        async def __aiter__(self):
            asked.set()
            await asyncio.Event().wait()
            yield b""

    async def asking():
        wire = Wire(library.Response(503, headers={"Content-Length": "5"}, stream=body))
        sent = asyncio.create_task(
            AsyncTransport(frozen(retry=1), wire).handle_async_request(library.Request("GET", URL))
        )
        await asked.wait()
        sent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sent

    asked, body = asyncio.Event(), Slow()
    asyncio.run(asking())
    assert body.is_closed


@pytest.mark.parametrize(
    ("marks", "counts"),
    [
        ({}, True),
        ({"from_cache": True, "cache_metadata": {}}, False),
        ({"from_cache": False}, True),
        ({"from_cache": True, "revalidated": False}, False),
        ({"from_cache": True, "revalidated": True}, True),
        ({"hishel_from_cache": True, "hishel_revalidated": False}, False),
        ({"hishel_from_cache": True, "hishel_revalidated": True}, True),
        ({"hishel_from_cache": False, "hishel_stored": True}, True),
    ],
)
def test_a_response_stored_by_hishel_is_counted_only_if_revalidated(library, sending, marks, counts):
    polite = frozen()
    sending.send(polite, Wire(rest(library, extensions=marks)), library.Request("GET", URL))
    assert polite.explain(URL).held is counts


def test_the_inner_transport_is_entered_left_and_closed(library):
    wire = Wire(library.Response(200))
    with library.Client(transport=Transport(frozen(), wire)) as client:
        client.get(URL)
    assert wire.calls == ["enter", ("exit", None, None, None)]
    Transport(frozen(), wire := Wire()).close()
    assert wire.calls == ["close"]

    async def asynchronously():
        wire = Wire(library.Response(200))
        async with library.AsyncClient(transport=AsyncTransport(frozen(), wire)) as client:
            await client.get(URL)
        assert wire.calls == ["enter", ("exit", None, None, None)]
        await AsyncTransport(frozen(), wire := Wire()).aclose()
        assert wire.calls == ["close"]

    asyncio.run(asynchronously())


def test_a_transport_that_has_sent_nothing_can_be_closed():
    with Transport(frozen()) as transport:
        transport.close()

    async def asynchronously():
        async with AsyncTransport(frozen()) as transport:
            await transport.aclose()

    asyncio.run(asynchronously())


def test_without_an_inner_transport_the_library_s_own_is_made_once(library, monkeypatch):
    made = []

    class Own(Wire):
        def __init__(self):
            super().__init__(*[library.Response(200)] * 8)
            made.append(self)
            time.sleep(0.01)  # so that the others want one too

    monkeypatch.setattr(library, "HTTPTransport", Own)
    monkeypatch.setattr(library, "AsyncHTTPTransport", Own)
    transport, begun = Transport(frozen()), threading.Barrier(8)

    def ask():
        begun.wait(10)
        transport.handle_request(library.Request("GET", URL))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(each.sent) for each in made] == [8]
    transport.close()
    assert made[0].calls == ["close"]

    async def asynchronously():
        transport = AsyncTransport(frozen())
        for _ in range(2):
            await transport.handle_async_request(library.Request("GET", URL))
        await transport.aclose()

    asyncio.run(asynchronously())
    assert ([len(each.sent) for each in made], made[1].calls) == ([8, 2], ["close"])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_for_advice_does_not_wait_in_a_second_transport(library, is_async):
    asked = []

    def answer(request):
        asked.append(request.url.path)
        return library.Response(200, content=b"a")

    async def ask(courtesy):
        transport = AsyncTransport(courtesy, AsyncTransport(courtesy, library.MockTransport(answer)))
        async with library.AsyncClient(transport=transport) as client:
            return await client.get("https://example.com/")

    courtesy = Courtesy("ExampleBot")
    if is_async:
        assert asyncio.run(ask(courtesy)).status_code == 200
    else:
        transport = Transport(courtesy, Transport(courtesy, library.MockTransport(answer)))
        with library.Client(transport=transport) as client:
            assert client.get("https://example.com/").status_code == 200
    assert asked == ["/.well-known/traffic-advice", "/"]


HELD_URL = "https://example.com/"


def held(**options) -> Courtesy:
    courtesy = Courtesy(clock=lambda: 1000.0, **options)
    courtesy.throttle.response_received(HELD_URL, 200, {"Retry-After": "60"}, now=1000.0)
    return courtesy


def test_client_is_the_library_s_and_sends_no_held_request():
    with Client(held(), headers={"X-One": "1"}, timeout=3) as client:
        assert isinstance(client, httpx2.Client)
        assert (client.headers["X-One"], client.timeout.read) == ("1", 3)
        assert Client(held()).timeout == httpx2.Timeout(5, read=15)
        with pytest.raises(RetryLater):
            client.get(HELD_URL)


def test_every_transport_of_a_client_is_polite(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "direct.example")
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200))
    for make, polite in ((Client, Transport), (AsyncClient, AsyncTransport)):
        client = make("ExampleBot", mounts={"all://mounted.example": answer})
        assert isinstance(client._transport, polite)
        mounted = {pattern.pattern: transport for pattern, transport in client._mounts.items()}
        assert mounted["all://*direct.example"] is None  # which stands for the client's own
        for pattern in ("https://", "all://mounted.example"):
            assert isinstance(mounted[pattern], polite)
            assert mounted[pattern]._courtesy is client._transport._courtesy


@pytest.mark.parametrize(
    ("hosts", "patterns"),
    [
        ("example.com, .example.org", {"all://*example.com": None, "all://*.example.org": None}),
        ("localhost,10.0.0.1,::1", {"all://localhost": None, "all://10.0.0.1": None, "all://[::1]": None}),
        ("example.com,*", None),
    ],
)
def test_proxies_of_the_environment_are_those_of_the_library(monkeypatch, hosts, patterns):
    monkeypatch.setenv("ALL_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", hosts)
    expected = {} if patterns is None else {"all://": "http://proxy.example:3128", **patterns}
    assert httpx_client._environment_proxies() == expected == httpx2._utils.get_environment_proxies()


def test_closing_a_client_closes_its_transport():
    client = Client(None)
    inner = client._transport._inner
    closed = []
    inner.close = partial(closed.append, True)
    client.close()
    assert closed == [True]


VARIANTS = {
    "httpx2": (httpx2, False),
    "httpx2, asynchronous": (httpx2, True),
    "httpx": (httpx, False),
    "httpx, asynchronous": (httpx, True),
}


class TestTransports(TransportLaws):
    @pytest.fixture(autouse=True, params=VARIANTS.values(), ids=VARIANTS)
    def variant(self, request):
        self.library, self.is_async = request.param
        self.error = self.library.TransportError
        library = self.library
        self.default_user_agent = f"python-{library.__name__}/1"
        self.errors = (
            (library.ReadError("lost"), "broken"),
            (library.ReadTimeout("late"), "broken"),
            (library.RemoteProtocolError("closed"), "broken"),
            (library.ConnectError("refused"), "unsent"),
            (library.ConnectTimeout("late"), "unsent"),
            (library.PoolTimeout("full"), "ours"),
            (library.UnsupportedProtocol("ftp"), "ours"),
            (caused(library.ConnectError("files"), OSError(errno.EMFILE, "too many")), "ours"),
            (caused(library.ConnectError("tls"), ssl.SSLCertVerificationError()), "ours"),
            (asyncio.CancelledError(), "ours"),
        )
        self.cannot_be_counted = (StopIteration, RuntimeError)

    def request(self, url=URL, method="GET", *, body=None, options=None):
        return self.library.Request(method, url, content=body, extensions={"headgate": options})

    def response(self, status=200, *fields, from_cache=False):
        extensions = {"from_cache": True} if from_cache else {}
        return self.library.Response(status, headers=[*fields], stream=Body(), extensions=extensions)

    def send(self, courtesy, requests, answers):
        return Sending(self.is_async).send_all(courtesy, Wire(*answers), requests)

    def is_closed(self, response):
        return response.is_closed

    def status(self, response):
        return response.status_code

    def repeatable_bodies(self):
        whole = [{}, {"content": b"bytes"}, {"content": "text"}, {"data": {"a": "form"}}, {"json": {}}]
        once = [
            {"content": iter([b"once"])}, {"content": io.BytesIO(b"once")}, {"files": {"a": io.BytesIO(b"once")}},
            {"stream": Body(b"once")},
        ]  # fmt: skip
        return [(self.library.Request("PUT", URL, **body), body in whole) for body in [*whole, *once]]


def test_a_response_that_is_read_already_ends_its_request():
    courtesy = Courtesy(concurrency=1, wait=0.01, clock=lambda: 1000.0)
    answers = httpx2.MockTransport(lambda request: httpx2.Response(200, content=b"hello"))
    with httpx2.Client(transport=Transport(courtesy, answers)) as client:
        assert [client.get(HELD_URL).text for _ in range(2)] == ["hello"] * 2
