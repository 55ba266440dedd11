"""Fetching advice over checked addresses, once for concurrent requests."""

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import pytest
import trustme

from headgate.advice.parser import UNREACHABLE
from headgate.proxy.admission import advice_service as module
from headgate.proxy.admission.advice_service import AdviceService
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.counters import Counts
from headgate.proxy.refusal import Refusal
from headgate.proxy.sockets import Endpoint
from tests.quotes import quotes

AUTHORITY = trustme.CA()
HERE = ip_address("127.0.0.1")
HALF = b'[{"user_agent":"prefetch-proxy","fraction":0.5}]'
GIVEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/trafficadvice+json\r\nContent-Length: %d\r\n\r\n%s"


def answer(body=HALF):
    return GIVEN % (len(body), body)


class Origin:
    """A TLS origin that says `said` to each request, and remembers them."""

    def __init__(self, said=None, *, name="www.example.org"):
        self.said = answer() if said is None else said
        self.heard = []
        self.names = []
        self.connections = 0
        self.hold = None
        self.asked = asyncio.Event()
        self.serving = set()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.sni_callback = lambda _, name, __: self.names.append(name)
        AUTHORITY.issue_cert(name).configure_cert(self.tls)

    async def serve(self, reader, writer):
        self.serving.add(asyncio.current_task())
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            self.heard.append(await reader.readuntil(b"\r\n\r\n"))
            self.asked.set()
            if self.hold is not None:
                await self.hold.wait()
            writer.write(self.said)
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    @asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=self.tls)
        async with server:
            yield server.sockets[0].getsockname()[1]
        if self.serving:
            await asyncio.wait(self.serving, timeout=5)


def client_context():
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    AUTHORITY.configure_trust(context)
    return context


class Proxy:
    def __init__(self, **options):
        self.counts = Counts()
        self.now = 1_000_000.0
        self.service = AdviceService(
            "TollKeeper", tls=client_context(), counts=self.counts, clock=lambda: self.now, **options
        )

    async def ask(self, port, name="www.example.org", to=None):
        authority = parse_authority(f"{name}:{port}")
        return await self.service.advice(authority, [Endpoint(HERE, to or port)])


async def test_the_fetch_has_nothing_of_the_client():
    origin, proxy = Origin(), Proxy()
    async with origin.running() as port:
        advice, unreachable_reason = await proxy.ask(port)
    assert unreachable_reason is None
    assert advice.entry.fraction == 0.5
    assert origin.heard == [
        b"GET /.well-known/traffic-advice HTTP/1.1\r\nHost: www.example.org:%d\r\n"
        b"Accept: application/trafficadvice+json\r\nAccept-Encoding: identity\r\n"
        b"User-Agent: TollKeeper\r\nConnection: close\r\n\r\n" % port
    ]
    assert origin.names == ["www.example.org"]
    assert proxy.counts.advice_fetches == {"entry": 1}
    # The request, and what TLS adds to it.
    assert 300 < proxy.counts.advice_request_bytes < 3000


@quotes(
    "traffic-advice 8.3",
    "Agents which are proxy services accessible to untrusted users (esp. the general public) may be "
    "susceptible to being used to amplify a denial of service attack conducted, for example, by a botnet."
    " For example, if a small request from a client (e.g. CONNECT target.example:443 with small headers) "
    "can cause a larger request (e.g., GET /.well-known/traffic-advice with large headers) to the origin "
    "server, this could be used to increase the effective bandwidth available to the distributed denial "
    "of service attack against an origin server.",
)
async def test_a_small_request_causes_no_larger_one():
    validators = b'ETag: "%s"\r\nLast-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-' % (b"a" * 900)
    origin, proxy = Origin(answer(b"[]").replace(b"Content-", validators, 1)), Proxy()
    async with origin.running() as port:
        for _ in range(100):
            await proxy.ask(port)
        proxy.now += 1800
        await proxy.ask(port)
    assert b"If-Modified-Since" in origin.heard[1]
    assert max(map(len, origin.heard)) < 300
    # Two requests, what TLS adds to them included, for 101 CONNECTs.
    assert len(origin.heard) == 2
    assert proxy.counts.advice_request_bytes < 101 * len(b"CONNECT www.example.org:443 HTTP/1.1\r\n\r\n")


async def test_concurrent_requests_share_a_fetch():
    origin, proxy = Origin(), Proxy()
    origin.hold = asyncio.Event()
    async with origin.running() as port:
        asking = [asyncio.ensure_future(proxy.ask(port)) for _ in range(100)]
        await origin.asked.wait()
        asking[0].cancel()  # the first caller leaves, and the fetch goes on
        await asyncio.sleep(0)
        origin.hold.set()
        answers = await asyncio.gather(*asking[1:])
        assert {advice.entry.fraction for advice, _ in answers} == {0.5}
        proxy.now += 1799
        await proxy.ask(port)
        assert proxy.service.known(f"https://www.example.org:{port}", now=proxy.now).entry.fraction == 0.5
        assert origin.connections == 1
        proxy.now += 2
        assert proxy.service.known(f"https://www.example.org:{port}", now=proxy.now) is None
        await proxy.ask(port)
        assert origin.connections == 2
    assert proxy.service._pending == {}


async def test_the_minimum_freshness_is_configurable():
    origin = Origin(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nCache-Control: max-age=1\r\n\r\n")
    proxy = Proxy(min_freshness=3.0)
    async with origin.running() as port:
        advice, _ = await proxy.ask(port)
    assert advice.fresh_until == proxy.now + 3


async def test_an_unreachable_origin_is_held():
    proxy = Proxy(unreachable_for=30.0)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        advice, unreachable_reason = await proxy.ask(port)
        assert unreachable_reason.reason == "dial_refused"
        assert advice.result is UNREACHABLE
        proxy.now += 29
        advice, unreachable_reason = await proxy.ask(port)
        assert unreachable_reason is None
        assert advice.result is UNREACHABLE
        proxy.now += 1
        assert (await proxy.ask(port))[1].reason == "dial_refused"
    assert proxy.counts.advice_fetches == {"unreachable": 2}


@pytest.mark.parametrize(
    ("said", "kind", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "none", "status 404"),
        (b"HTTP/1.1 503 No\r\nRetry-After: 600\r\n\r\n", "unreachable", "status 503"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/\r\n\r\n", "none", "redirects are not followed"),
        (b"SSH-2.0-OpenSSH\r\n", "unreachable", "invalid HTTP/1.1 response"),
        (b"", "unreachable", "invalid HTTP/1.1 response"),
        (GIVEN % (1000, HALF), "unreachable", "the connection ended in the body"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "unreachable", "exceed the limit"),
    ],
)
async def test_every_response_is_a_result(said, kind, why):
    origin, proxy = Origin(said), Proxy()
    async with origin.running() as port:
        advice, unreachable_reason = await proxy.ask(port)
    assert unreachable_reason is None
    assert why in advice.reason
    assert proxy.counts.advice_fetches == {kind: 1}


async def test_a_certificate_for_another_name_is_unreachable():
    origin, proxy = Origin(name="other.example.org"), Proxy()
    async with origin.running() as port:
        advice, unreachable_reason = await proxy.ask(port)
    assert (advice.result, unreachable_reason) == (UNREACHABLE, None)
    assert "its certificate is not trusted: Hostname mismatch" in advice.reason
    assert origin.heard == []


async def test_a_silent_origin_times_out(monkeypatch):
    monkeypatch.setattr(module, "ADVICE_TIMEOUT", 0.2)
    origin, proxy = Origin(), Proxy()
    origin.hold = asyncio.Event()
    async with origin.running() as port:
        advice, unreachable_reason = await proxy.ask(port)
        origin.hold.set()
    assert (advice.result, unreachable_reason) == (UNREACHABLE, None)
    assert "not within" in advice.reason


async def test_running_out_of_sockets_is_not_the_origins_failure(monkeypatch):
    async def none_left(endpoints, *, seconds):
        raise Refusal("connections")

    origin, proxy = Origin(), Proxy()
    async with origin.running() as port:
        with monkeypatch.context() as patch:
            patch.setattr(module, "dial", none_left)
            with pytest.raises(Refusal, match="connections"):
                await proxy.ask(port)
        advice, _ = await proxy.ask(port)
        assert advice.entry.fraction == 0.5


async def test_an_unexpected_error_is_reported_and_the_next_request_fetches_again(monkeypatch):
    async def fail(*_args, **_named):
        raise LookupError("a defect")

    origin, proxy, reported = Origin(), Proxy(), []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: reported.append(told["exception"]))
    async with origin.running() as port:
        with monkeypatch.context() as patch:
            patch.setattr(module, "exchange", fail)
            for _ in range(2):
                with pytest.raises(Refusal) as caught:
                    await proxy.ask(port)
                assert (caught.value.reason, caught.value.rule.status) == ("internal", 503)
        assert [str(error) for error in reported] == ["a defect"] * 2
        advice, _ = await proxy.ask(port)
        assert advice.entry.fraction == 0.5
    assert proxy.service._pending == {}


async def test_close_cancels_fetches():
    origin, proxy = Origin(), Proxy()
    origin.hold = asyncio.Event()
    async with origin.running() as port:
        asking = asyncio.ensure_future(proxy.ask(port))
        await origin.asked.wait()
        proxy.service.close()
        with pytest.raises(asyncio.CancelledError):
            await asking
        origin.hold.set()


async def test_fetches_from_one_address_are_limited(monkeypatch):
    monkeypatch.setattr(module, "MAX_FETCHES_PER_ADDRESS", 3)
    origin, proxy = Origin(name="*.example.org"), Proxy()
    origin.hold = asyncio.Event()
    async with origin.running() as port:
        asking = []
        for number in range(3):
            origin.asked.clear()
            asking.append(asyncio.ensure_future(proxy.ask(port, f"{number}.example.org")))
            await origin.asked.wait()
        with pytest.raises(Refusal, match=r"3 fetches from 127\.0\.0\.1 are pending") as caught:
            await proxy.ask(port, "more.example.org")
        assert (caught.value.reason, caught.value.retry_after) == ("advice_unreachable", 0)
        origin.hold.set()
        await asyncio.gather(*asking)
        # That was not the origin's fault: it is asked as soon as there is room, and nothing is kept.
        advice, _ = await proxy.ask(port, "more.example.org")
        assert advice.entry.fraction == 0.5
        assert not proxy.service._fetching
