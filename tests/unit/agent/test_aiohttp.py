"""The middleware for aiohttp, before a handler that sends nothing."""

import asyncio
import errno
from types import SimpleNamespace

import aiohttp
import pytest
import yarl
from multidict import CIMultiDict

from headgate.agent.aiohttp import Middleware
from tests.unit.agent.transport_laws import TARGETS, URL, Script, TransportLaws, frozen

pytestmark = pytest.mark.usefixtures("short_pauses")


class Content:
    """A body in pieces."""

    def __init__(self, *pieces: bytes | BaseException) -> None:
        self.pieces = list(pieces)

    def at_eof(self):
        return not self.pieces

    async def readany(self):
        piece = self.pieces.pop(0)
        if isinstance(piece, BaseException):
            raise piece
        return piece


def request(method="GET", url=URL, body=b"", **headers):
    return SimpleNamespace(method=method, url=yarl.URL(url), body=body, headers=CIMultiDict(headers))


def response(status=200, *lines, body=(), **attributes):
    made = SimpleNamespace(status=status, headers=CIMultiDict(lines), content=Content(*body))
    made.released = made.closed = False
    made.release = lambda: setattr(made, "released", True)
    made.close = lambda: setattr(made, "closed", True)
    vars(made).update(attributes)
    return made


class Wire(Script):
    async def __call__(self, request):
        return self.answer(request)


def sent(courtesy, wire, *requests, **options):
    """Send requests one after the other, in one task; give the last response."""

    async def all_of_them():
        middleware = Middleware(courtesy, **options)
        for one in requests:
            last = await middleware(one, wire)
        return last

    return asyncio.run(all_of_them())


def test_of_a_refused_body_only_a_limited_part_is_read():
    for body, left in (
        ([b"short", b"er"], 0),
        ([bytes(40_000)] * 5, 3),
        ([aiohttp.ClientPayloadError("broken"), b"rest"], 1),
    ):
        refused = response(503, body=body)
        assert sent(frozen(retry=1), Wire(refused, response(200)), request()).status == 200, body
        assert (len(refused.content.pieces), refused.released) == (left, True), body


def test_a_request_cancelled_while_a_refused_body_is_read_releases_it():
    refused = response(503, body=[asyncio.CancelledError()])
    with pytest.raises(asyncio.CancelledError):
        sent(frozen(retry=1), Wire(refused), request())
    assert refused.released


class TestMiddleware(TransportLaws):
    error = aiohttp.ClientError
    default_user_agent = "Python/3.11 aiohttp/3.0"
    errors = (
        (aiohttp.ServerDisconnectedError(), "broken"),
        (aiohttp.ClientOSError(), "broken"),
        (aiohttp.SocketTimeoutError(), "broken"),
        (aiohttp.ClientConnectorError(None, ConnectionRefusedError(errno.ECONNREFUSED, "refused")), "unsent"),
        (aiohttp.ClientConnectorError(None, OSError(errno.EMFILE, "too many")), "ours"),
        (aiohttp.ClientError(), "ours"),
        (TimeoutError(), "ours"),  # which may be that of its connection pool
        (asyncio.CancelledError(), "ours"),
    )
    cannot_be_counted = RuntimeError

    def request(self, url=URL, method="GET", *, body=b"", options=None):
        return request(method, url, body)

    def response(self, status=200, *fields, from_cache=False):
        return response(status, *fields, from_cache=from_cache)

    def send(self, courtesy, requests, answers):
        async def send_all():
            middleware, wire, outcomes = Middleware(courtesy), Wire(*answers), []
            for request in requests:
                try:
                    outcomes.append(await middleware(request, wire))
                except BaseException as error:
                    outcomes.append(error)
            return outcomes

        return asyncio.run(send_all())

    def is_closed(self, response):
        return response.released

    def repeatable_bodies(self):
        return [
            (request("PUT"), True),
            (request("PUT", body=aiohttp.BytesPayload(b"bytes")), True),
            (request("PUT", body=aiohttp.StringPayload("text")), True),
            (request("PUT", body=aiohttp.JsonPayload({})), True),
            (request("PUT", body=aiohttp.MultipartWriter()), False),
            (request("PUT", body=aiohttp.BytesPayload(b"bytes"), Expect="100-continue"), False),
        ]

    def test_an_interactive_request_is_not_held(self):
        answers = Wire(response(200, ("Retry-After", "60")), response(204))

        async def send():
            courtesy = frozen()
            await Middleware(courtesy)(request(), answers)
            return await Middleware(courtesy, interactive=True)(request(), answers)

        assert asyncio.run(send()).status == 204

    test_a_request_with_invalid_options_is_not_sent = None  # a middleware has no options for one request

    def test_each_way_to_write_a_url_has_the_same_target(self):
        """With the URLs that a session passes to its middlewares."""
        asked = []

        async def network(request, handler):
            asked.append(str(request.url))
            raise aiohttp.ClientError

        async def ask_all():
            async with aiohttp.ClientSession(middlewares=[network]) as session:
                for url in TARGETS:
                    with pytest.raises(aiohttp.ClientError):
                        await session.get(url)

        asyncio.run(ask_all())
        throttle = frozen().throttle
        assert [throttle.target(url).name for url in asked] == [*TARGETS.values()]
