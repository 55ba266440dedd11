"""Clients of httpx2 and of httpx with the transports in them: the laws of every polite agent, and what is their own.

An asynchronous client runs in an event loop of its own thread, asyncio's or trio's, which every question is put to.
"""

import contextvars
import threading
from contextlib import contextmanager

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx
import httpx2
import pytest

from headgate.agent.httpx_transport import AsyncTransport, Transport, _held_in
from headgate.throttle import Policy
from tests.e2e import polite_laws
from tests.e2e.polite_laws import SOON, courtesy
from tests.e2e.polite_origin import ADVICE, Answer

LIBRARIES = [httpx2, httpx]
LOOPS = ["asyncio", "trio"]
INTERACTIVE = {"headgate": {"interactive": True}}

origin = polite_laws.origin
short_pauses = polite_laws.short_pauses


@pytest.fixture(params=LIBRARIES, ids=["httpx2", "httpx"])
def library(request):
    return request.param


@pytest.fixture(params=LOOPS)
def run(request):
    """Return the function that runs a coroutine function in each kind of event loop."""
    return lambda function, *arguments: anyio.run(function, *arguments, backend=request.param)


class Client:
    def __init__(self, client: httpx2.Client | httpx.Client) -> None:
        self.client = client

    def ask(self, url, method="GET", body=None, *, interactive=False, follow=True):
        extensions = INTERACTIVE if interactive else None
        response = self.client.request(method, url, content=body, follow_redirects=follow, extensions=extensions)
        return response.status_code, response.content

    def read_in_two(self, url, go_on):
        with self.client.stream("GET", url) as response:
            body = response.iter_raw()
            first = next(body)
            go_on()
            return first, b"".join(body)


class AsyncClient:
    def __init__(
        self, portal: anyio.from_thread.BlockingPortal, client: httpx2.AsyncClient | httpx.AsyncClient
    ) -> None:
        self.portal = portal
        self.client = client

    async def asked(self, url, method="GET", body=None, *, interactive=False, follow=True):
        extensions = INTERACTIVE if interactive else None
        response = await self.client.request(method, url, content=body, follow_redirects=follow, extensions=extensions)
        return response.status_code, response.content

    def ask(self, *arguments, **options):
        # As every task, in a copy of the context where it begins.
        context = contextvars.copy_context()
        return context.run(self.portal.call, lambda: self.asked(*arguments, **options))

    def read_in_two(self, url, go_on):
        async def read():
            async with self.client.stream("GET", url) as response:
                body = response.aiter_raw()
                first = await anext(body)
                go_on()
                return first, b"".join([piece async for piece in body])

        return self.portal.call(read)


class Laws(polite_laws.Laws):
    library = httpx2
    ends_with_body = True

    @property
    def error(self):
        return self.library.TransportError

    @property
    def held(self):
        return _held_in(self.library)


class TestHttpx2(Laws):
    @contextmanager
    def client(self, polite):
        with self.library.Client(transport=Transport(polite)) as client:
            yield Client(client)


class TestHttpx(TestHttpx2):
    library = httpx


class TestHttpx2InAsyncio(Laws):
    loop = "asyncio"

    @contextmanager
    def client(self, polite):
        with (
            anyio.from_thread.start_blocking_portal(self.loop) as portal,
            portal.wrap_async_context_manager(self.library.AsyncClient(transport=AsyncTransport(polite))) as client,
        ):
            yield AsyncClient(portal, client)


class TestHttpx2InTrio(TestHttpx2InAsyncio):
    loop = "trio"


class TestHttpxInAsyncio(TestHttpx2InAsyncio):
    library = httpx


def test_a_wait_counts_for_no_timeout_and_uses_no_connection(origin, library, run):
    origin.say("/held", Answer(503, {"Retry-After": "1"}), 200)

    async def asking():
        one = library.Limits(max_connections=1)
        inner = library.AsyncHTTPTransport(limits=one)
        timeout = library.Timeout(5, connect=0.5, pool=0.5)
        async with (
            library.AsyncClient(transport=AsyncTransport(courtesy(wait=60), inner), timeout=timeout) as client,
            anyio.create_task_group() as tasks,
        ):
            assert (await client.get(f"{origin.url}/held")).status_code == 503
            tasks.start_soon(client.get, f"{origin.url}/held")
            while len(origin.got("/held")) < 2:
                assert (await client.get(f"{origin.url}/free")).status_code == 200
                await anyio.sleep(0.02)

    run(asking)
    first, second = origin.got("/held")
    assert second.at - first.at >= 1
    assert origin.got("/free")


def test_a_cancelled_request_affects_neither_others_nor_connections(origin, library, run):
    asked, may_answer = threading.Event(), threading.Event()

    def slowly():
        asked.set()
        assert may_answer.wait(10)
        yield b"[]"

    origin.say(ADVICE, Answer(200, {"Content-Type": "application/trafficadvice+json"}, slowly()))
    origin.say("/held", Answer(200, {"Retry-After": "3000"}))
    polite = courtesy(Policy.draft(), wait=3600, identity=["ExampleBot", "*"])

    async def asking():
        async with library.AsyncClient(transport=AsyncTransport(polite)) as client:

            async def get(path, scope, statuses):
                with scope:
                    statuses.append((await client.get(origin.url + path)).status_code)

            async with anyio.create_task_group() as tasks:
                one, other, got = anyio.CancelScope(), anyio.CancelScope(), []
                tasks.start_soon(get, "/held", one, got)
                tasks.start_soon(get, "/held", other, got)
                await anyio.to_thread.run_sync(asked.wait, 10)
                one.cancel()
                may_answer.set()
            assert (got, one.cancelled_caught, other.cancelled_caught) == ([200], True, False)
            with anyio.move_on_after(0.05) as held:
                await client.get(f"{origin.url}/held")
            assert held.cancelled_caught
            assert (await client.get(f"{origin.url}/free")).status_code == 200

    try:
        run(asking)
    finally:
        may_answer.set()
    assert len(origin.got(ADVICE)) == 1
    assert [asked.path for asked in origin.got()] == ["/held", "/free"]


@pytest.mark.needs("nginx")
def test_retries_over_http_2_use_one_connection(nginx, free_port, library, run):
    port = free_port()
    site = nginx(
        server=f"""
        listen 127.0.0.1:{port} http2;
        location /failing {{ return 503 $connection; }}
        location / {{ return 200 $connection; }}
        """
    )
    assert site.port != port
    url = f"http://127.0.0.1:{port}"

    def check(statuses, protocols, connections):
        assert (statuses, protocols, len(connections)) == ([503] * 3, {"HTTP/2"}, 1)

    inner = library.HTTPTransport(http1=False, http2=True)
    with library.Client(transport=Transport(courtesy(SOON, wait=60, retry=2), inner)) as client:
        got = [client.get(f"{url}/failing") for _ in range(3)]
        check([each.status_code for each in got], {each.http_version for each in got}, {each.text for each in got})

    async def asking():
        inner = library.AsyncHTTPTransport(http1=False, http2=True)
        polite = AsyncTransport(courtesy(SOON, wait=60, retry=2), inner)
        async with library.AsyncClient(transport=polite) as client:
            got = [await client.get(f"{url}/failing") for _ in range(3)]
        check([each.status_code for each in got], {each.http_version for each in got}, {each.text for each in got})

    run(asking)
