"""The middleware for aiohttp, called by itself, and in a session that sends nothing."""

import asyncio
import importlib
import pickle
import sys
import time
from types import SimpleNamespace

import aiohttp
import pytest
import yarl
from multidict import CIMultiDict

from headgate.agent import Courtesy, NoContact
from headgate.agent.aiohttp import Held, Middleware
from headgate.errors import MissingExtra
from headgate.throttle import Policy, Throttle
from tests.unit.agent.addresses import TARGETS

pytestmark = pytest.mark.usefixtures("short_pauses")

URL = "https://example.com/path"


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


class Wire:
    """Answers with what it was made with, one after the other."""

    def __init__(self, *answers: SimpleNamespace | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[SimpleNamespace] = []

    async def __call__(self, request):
        self.sent.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def sent(courtesy, wire, *requests, **options):
    """Send requests one after the other, in one task; give the last response."""

    async def all_of_them():
        middleware = Middleware(courtesy, **options)
        for one in requests:
            last = await middleware(one, wire)
        return last

    return asyncio.run(all_of_them())


def courtesy(**options) -> Courtesy:
    options = {"throttle": Throttle(Policy(jitter_factor=0)), **options}
    return Courtesy(clock=lambda: 1000.0, **options)


def test_the_error_is_both():
    wire = Wire(response(200, ("Retry-After", "60")))
    with pytest.raises(aiohttp.ClientError) as caught:
        sent(courtesy(), wire, request(), request())
    held = caught.value
    assert isinstance(held, NoContact)
    assert (held.release_time, held.reason, held.target) == (1060.0, "retry-after", URL)
    again = pickle.loads(pickle.dumps(held))
    assert (type(again), str(again), again.args) == (Held, str(held), held.args)
    assert len(wire.sent) == 1


def test_every_line_of_a_field_is_read():
    polite = courtesy()
    sent(polite, Wire(response(200, ("Retry-After", "60"), ("retry-after", "90"))), request())
    assert polite.explain(URL).retry_after == 1090.0


def test_what_comes_out_of_a_cache_counts_for_nothing():
    polite = courtesy()
    sent(polite, Wire(response(503, ("Retry-After", "60"), from_cache=True)), request())
    assert (polite.explain(URL).failures, polite.explain(URL).held) == (0, False)


def patient() -> Courtesy:
    soon = Policy(num_errors_to_ignore=0, initial_backoff=0.01, multiply_factor=1, jitter_factor=0)
    return Courtesy(throttle=Throttle(soon), max_delay=60, retry=1)


def test_what_is_held_waits_where_it_may():
    begun = time.time()
    assert sent(patient(), Wire(response(503), response(200)), request()).status == 200
    assert time.time() - begun >= 0.01


def test_one_may_be_for_requests_that_a_user_waits_for():
    polite = courtesy()
    sent(polite, Wire(response(200, ("Retry-After", "60"))), request())
    assert sent(polite, Wire(response(204)), request(), interactive=True).status == 204


@pytest.mark.parametrize("error", [aiohttp.ClientError(), TimeoutError(), asyncio.CancelledError(), ValueError()])
def test_what_got_no_response_keeps_its_draw_when_it_is_sent_again(half_wanted, error):
    middleware, wire = Middleware(half_wanted(0.9, 0.1)), Wire(error, response(204))

    async def again():
        with pytest.raises(type(error)):
            await middleware(request(), wire)
        assert (await middleware(request(), wire)).status == 204
        with pytest.raises(Held):
            await middleware(request(), wire)

    asyncio.run(again())


def test_a_response_that_cannot_be_noted_is_closed(broken):
    answer = response(200)
    with pytest.raises(RuntimeError):
        sent(broken, Wire(answer), request())
    assert answer.closed


@pytest.mark.parametrize(
    ("asked", "repeatable"),
    [
        (request("PUT"), True),
        (request("PUT", body=aiohttp.BytesPayload(b"bytes")), True),
        (request("PUT", body=aiohttp.StringPayload("text")), True),
        (request("PUT", body=aiohttp.JsonPayload({})), True),
        (request("PUT", body=aiohttp.MultipartWriter()), False),
        (request("PUT", body=aiohttp.BytesPayload(b"bytes"), Expect="100-continue"), False),
    ],
)
def test_only_a_body_that_is_all_there_is_sent_again(asked, repeatable):
    refused = response(503)
    assert sent(courtesy(retry=1), Wire(refused, response(200)), asked).status == (200 if repeatable else 503)
    assert refused.released == repeatable


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ([b"short", b"er"], 0),
        ([bytes(40_000)] * 5, 3),
        ([aiohttp.ClientPayloadError("broken"), b"rest"], 1),
    ],
)
def test_a_refused_body_is_read_as_far_as_its_connection_is_worth(body, left):
    refused = response(503, body=body)
    assert sent(courtesy(retry=1), Wire(refused, response(200)), request()).status == 200
    assert (len(refused.content.pieces), refused.released) == (left, True)


def test_whoever_gives_up_meanwhile_leaves_no_response_behind():
    refused = response(503, body=[asyncio.CancelledError()])
    with pytest.raises(asyncio.CancelledError):
        sent(courtesy(retry=1), Wire(refused), request())
    assert refused.released


def test_a_connection_that_breaks_counts_for_nothing():
    polite = courtesy()
    for error in (aiohttp.ServerDisconnectedError(), aiohttp.ClientOSError(), TimeoutError()) * 2:
        with pytest.raises(type(error)):
            sent(polite, Wire(error), request())
    assert polite.explain(URL).failures == 0


@pytest.mark.parametrize(("url", "target"), TARGETS.items())
def test_a_url_is_the_target_it_is_in_every_library(url, target):
    class Sent(Exception):
        """As far as this goes."""

    polite = courtesy(throttle=Throttle(hold_localhost=True))

    async def network(request, handler):
        await Middleware(polite)(request, Wire(response(200, ("Retry-After", "60"))))
        raise Sent

    async def asking():
        async with aiohttp.ClientSession(middlewares=[network]) as session:
            with pytest.raises(Sent):
                await session.get(url)

    asyncio.run(asking())
    assert polite.explain(target).held


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "headgate.agent.aiohttp")
    with pytest.raises(MissingExtra, match=r"install it in a checkout of headgate: pip install '\.\[aiohttp\]'"):
        importlib.import_module("headgate.agent.aiohttp")
