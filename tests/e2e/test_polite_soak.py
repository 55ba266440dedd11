"""A server that is up and down, and every client: what the server saw, by the document's own numbers.

Each client asks as often as it can. The server counts the failures it sent as section 5 of the document counts them,
and notes every request that comes within the least no-contact period that jitter leaves.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import build_opener

import pytest

from headgate.agent import Courtesy, NoContact
from headgate.throttle import Throttle

SECONDS = 21.0
UP, DOWN = 3.0, 6.0
RETRY_AFTER = 1.0
PAUSE = 0.005


class Flapping:
    """Up for three seconds, down for six; once in each time it is up, it asks for a second's rest in a 200."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.asked = 0
        self.periods = 0
        self.early: list[str] = []
        self.failures = 0
        self.free_from = 0.0
        self.rested = -1

    def answer(self) -> tuple[int, bool]:
        """Take a request; give the status, and whether to ask for rest."""
        now = time.monotonic()
        self.asked += 1
        if now < self.free_from:
            self.early.append(f"{now - self.start:.3f} s, {self.free_from - now:.3f} s before its time")
        cycle, phase = divmod(now - self.start, UP + DOWN)
        if phase < UP:
            self.failures = max(0, self.failures - 1)
            rest, self.rested = self.rested != cycle, int(cycle)
            return 200, rest
        self.failures += 1
        return 503, False

    def answered(self, status: int, rests: bool) -> None:
        """Begin a no-contact period, if the response that is being sent makes one."""
        delay = RETRY_AFTER if rests else 0.0
        if status == 503 and self.failures > 2:
            # 5: "initial_backoff_ms*multiply_factor^effective_failure_count", and "between 90-100% of" it
            delay = max(delay, 0.9 * 0.7 * 1.4 ** (self.failures - 2))
        if delay:
            self.periods += 1
            self.free_from = max(self.free_from, time.monotonic() + delay)


@contextmanager
def flapping():
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            status, rests = server.state.answer()
            server.state.answered(status, rests)
            self.send_response(status)
            self.send_header("Content-Length", "2")
            if rests:
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.state = Flapping()
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.state, f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join(10)


Ask = Callable[[Callable[[], int]], None]


def again_and_again(ask: Callable[[], int], statuses: list[int | str]) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            statuses.append(ask())
        except NoContact as held:
            statuses.append(held.reason)
        time.sleep(PAUSE)


async def always_again(ask, statuses):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            statuses.append(await ask())
        except NoContact as held:
            statuses.append(held.reason)
        await asyncio.sleep(PAUSE)


def with_httpx2(courtesy, url, statuses):
    import httpx2

    from headgate.agent.httpx import Transport

    with httpx2.Client(transport=Transport(courtesy)) as client:
        again_and_again(lambda: client.get(url).status_code, statuses)


def with_httpx(courtesy, url, statuses):
    import httpx

    from headgate.agent.httpx import Transport

    with httpx.Client(transport=Transport(courtesy)) as client:
        again_and_again(lambda: client.get(url).status_code, statuses)


def with_async_httpx2(courtesy, url, statuses):
    import httpx2

    from headgate.agent.httpx import AsyncTransport

    async def run():
        async with httpx2.AsyncClient(transport=AsyncTransport(courtesy)) as client:

            async def ask():
                return (await client.get(url)).status_code

            await always_again(ask, statuses)

    asyncio.run(run())


def with_aiohttp(courtesy, url, statuses):
    import aiohttp

    from headgate.agent.aiohttp import Middleware

    async def run():
        async with aiohttp.ClientSession(middlewares=[Middleware(courtesy)]) as session:

            async def ask():
                async with session.get(url) as response:
                    return response.status

            await always_again(ask, statuses)

    asyncio.run(run())


def with_requests(courtesy, url, statuses):
    import requests

    from headgate.agent.requests import Adapter

    with requests.Session() as session:
        session.mount("http://", Adapter(courtesy))
        again_and_again(lambda: session.get(url).status_code, statuses)


def with_urllib(courtesy, url, statuses):
    from headgate.agent.urllib import Handler

    opener = build_opener(Handler(courtesy))

    def ask():
        try:
            with opener.open(url) as response:
                return response.status
        except HTTPError as error:
            with error:
                return error.code

    again_and_again(ask, statuses)


CLIENTS = [with_httpx2, with_async_httpx2, with_httpx, with_aiohttp, with_requests, with_urllib]


@pytest.mark.deep
def test_no_request_reaches_a_server_during_its_hold():
    """All clients at once, each with a server of its own."""
    seen = {}

    def soak(client):
        with flapping() as (server, url):
            statuses: list[int | str] = []
            client(Courtesy(throttle=Throttle(hold_localhost=True)), url, statuses)
            seen[client] = server, statuses

    threads = [threading.Thread(target=soak, args=(client,)) for client in CLIENTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 60)
    assert seen.keys() == set(CLIENTS)
    for client, (server, statuses) in seen.items():
        assert server.early == [], client
        # Twice down, three or four periods each, and three times rest.
        assert server.periods >= 6, client
        assert {200, 503, "backoff", "retry-after"} <= set(statuses), client
        # Far more requests were made than sent, and the server was not held for ever.
        assert statuses.count("backoff") > 100, client
        assert statuses.count(200) + statuses.count(503) == server.asked, client
        assert statuses.count(503) < 30, client
        assert statuses.count(200) > 50, client
