"""Sessions of niquests with the adapters in them: the laws of every polite agent, in threads and in an event loop."""

import asyncio
import contextvars
import copy
import pickle
from contextlib import contextmanager

import niquests
import pytest

from headgate.agent.niquests import Adapter, AsyncAdapter, Held
from tests.e2e import polite_laws
from tests.e2e.polite_laws import SOON, courtesy, frozen
from tests.e2e.polite_origin import Answer
from tests.e2e.test_polite_requests import Client, session_with

origin = polite_laws.origin
short_pauses = polite_laws.short_pauses


class NiquestsClient(Client):
    library = niquests


class TestLaws(polite_laws.Laws):
    error = niquests.ConnectionError
    held = Held

    @contextmanager
    def client(self, courtesy):
        with session_with(Adapter(courtesy, pool_maxsize=100), niquests.Session()) as session:
            yield NiquestsClient(session)


class AsyncClient:
    def __init__(self, runner: asyncio.Runner, session: niquests.AsyncSession) -> None:
        self.runner = runner
        self.session = session

    async def asked(self, url, method="GET", body=None, *, interactive=False, follow=True):
        request = self.session.prepare_request(niquests.Request(method, url, data=body))
        if interactive:
            request.headgate = {"interactive": True}
        response = await self.session.send(request, allow_redirects=follow)
        return response.status_code, response.content

    def ask(self, *arguments, **options):
        return self.runner.run(self.asked(*arguments, **options), context=contextvars.copy_context())

    def read_in_two(self, url, go_on):
        async def read():
            response = await self.session.get(url, stream=True)
            body = await response.iter_content(-1)
            first = await anext(body)
            go_on()
            return first, b"".join([piece async for piece in body])

        return self.runner.run(read())


class TestAsyncLaws(polite_laws.Laws):
    error = niquests.ConnectionError
    held = Held
    reuses_connections = False

    @contextmanager
    def client(self, courtesy):
        session = niquests.AsyncSession()
        session.trust_env = False
        with asyncio.Runner() as runner:
            session.mount("http://", AsyncAdapter(courtesy, pool_maxsize=100))
            session.mount("https://", AsyncAdapter(courtesy, pool_maxsize=100))
            try:
                yield AsyncClient(runner, session)
            finally:
                runner.run(session.close())


def test_a_multiplexed_session_obeys_what_a_response_asks(origin):
    origin.say("/", Answer(200, {"Retry-After": "60"}))
    with session_with(Adapter(frozen()), niquests.Session(multiplexed=True)) as session:
        assert session.get(f"{origin.url}/").status_code == 200
        with pytest.raises(Held) as caught:
            session.get(f"{origin.url}/")
        assert caught.value.request.url == f"{origin.url}/"


def test_a_session_with_an_adapter_can_be_pickled_and_copied(origin):
    with session_with(Adapter(courtesy(SOON)), niquests.Session()) as session:
        for other in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
            with other:
                assert other.get(f"{origin.url}/").status_code == 200
