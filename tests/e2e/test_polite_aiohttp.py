"""A session of aiohttp with the middleware in it: the laws of every polite agent, and what is this library's own."""

import asyncio
import contextvars
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import pytest

from headgate.agent import Courtesy
from headgate.agent.aiohttp import Held, Middleware
from tests.e2e import polite_laws
from tests.e2e.polite_laws import SOON, courtesy, frozen
from tests.e2e.polite_origin import Answer

origin = polite_laws.origin
short_pauses = polite_laws.short_pauses


class Client:
    def __init__(self, runner: asyncio.Runner, session: aiohttp.ClientSession, courtesy: Courtesy) -> None:
        self.runner = runner
        self.session = session
        self.interactive = Middleware(courtesy, interactive=True)

    async def asked(self, url, method="GET", body=None, *, interactive=False, follow=True):
        options = {"middlewares": [self.interactive]} if interactive else {}
        async with self.session.request(method, url, data=body, allow_redirects=follow, **options) as response:
            return response.status, await response.read()

    def ask(self, *arguments, **options):
        # As every task, in a copy of the context where it begins.
        return self.runner.run(self.asked(*arguments, **options), context=contextvars.copy_context())

    def read_in_two(self, url, go_on):
        async def read():
            async with self.session.get(url) as response:
                first = await response.content.readany()
                go_on()
                return first, await response.content.read()

        return self.runner.run(read())


class TestLaws(polite_laws.Laws):
    error = aiohttp.ClientError
    held = Held
    ends_with_body = True

    @contextmanager
    def client(self, courtesy):
        async def begun():
            return aiohttp.ClientSession(middlewares=[Middleware(courtesy)])

        with asyncio.Runner() as runner:
            session = runner.run(begun())
            try:
                yield Client(runner, session, courtesy)
            finally:
                runner.run(session.close())


@asynccontextmanager
async def session_with(courtesy: Courtesy, **options):
    async with aiohttp.ClientSession(middlewares=[Middleware(courtesy)], **options) as session:
        yield session


def test_a_request_may_have_a_middleware_of_its_own(origin, run):
    origin.say("/", Answer(200, {"Retry-After": "60"}))

    async def asking():
        middlewares = [Middleware(frozen())]
        async with aiohttp.ClientSession() as session:
            assert await fetched(session, f"{origin.url}/", middlewares=middlewares) == 200
            with pytest.raises(Held):
                await fetched(session, f"{origin.url}/", middlewares=middlewares)
            assert await fetched(session, f"{origin.url}/") == 200

    run(asking())


def test_expect_100_continue_is_sent_once(origin, run):
    origin.say("/", 503, 200)

    async def asking():
        async with (
            session_with(courtesy(SOON, wait=60, retry=1)) as session,
            session.put(f"{origin.url}/", data=b"body", expect100=True) as response,
        ):
            assert response.status == 503

    run(asking())
    assert len(origin.asked) == 1


def test_the_total_timeout_includes_the_wait(origin, run):
    origin.say("/", Answer(200, {"Retry-After": "3000"}))

    async def asking():
        async with session_with(courtesy(wait=3600)) as session:
            assert await fetched(session, f"{origin.url}/") == 200
            with pytest.raises(TimeoutError):
                await session.get(f"{origin.url}/", timeout=aiohttp.ClientTimeout(total=0.05))
            # The others are for the connection.
            waiting = session.get(f"{origin.url}/", timeout=aiohttp.ClientTimeout(sock_read=0.01, sock_connect=0.01))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting, 0.1)

    run(asking())
    assert len(origin.asked) == 1


def test_a_refused_web_socket_is_held(origin, run):
    origin.say("/", Answer(503, {"Retry-After": "60"}))

    async def asking():
        async with session_with(frozen()) as session:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(f"{origin.url}/")
            with pytest.raises(Held):
                await session.ws_connect(f"{origin.url}/")

    run(asking())
    assert len(origin.asked) == 1


async def fetched(session: aiohttp.ClientSession, url: str, **options) -> int:
    async with session.get(url, **options) as response:
        await response.read()
        return response.status
