"""Responses that the gateway makes itself."""

import json

import pytest

from headgate.http.h1 import RequestHead, RequestLimits, parse_request_head
from headgate.origin.gateway import responses
from headgate.origin.gateway.responses import (
    advice_response,
    crowded_response,
    date_line,
    gateway_problem,
    serialize,
    with_advice,
)
from headgate.origin.response import Response

DATE = b"Date: Thu, 01 Jan 1970 00:00:01 GMT\r\n"


@pytest.fixture(autouse=True)
def _one_second_after_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1.9)


def request(target: bytes, method: bytes = b"GET") -> RequestHead:
    return parse_request_head(method + b" " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n", RequestLimits())


@pytest.mark.parametrize(
    ("keep", "minor", "connection"),
    [(True, 1, b""), (True, 0, b"Connection: keep-alive\r\n"), (False, 1, b"Connection: close\r\n")],
)
def test_a_response_is_written_for_its_connection(keep: bool, minor: int, connection: bytes) -> None:
    response = Response(200, [(b"x", b"y"), (b"content-length", b"2")], b"hi")
    head = b"HTTP/1.1 200 OK\r\n" + DATE + connection + b"x: y\r\ncontent-length: 2\r\n\r\n"
    for _ in range(2):
        assert serialize(response, keep=keep, minor=minor) == head + b"hi"
        assert serialize(response, keep=keep, minor=minor, without_body=True) == head


def test_a_response_without_a_body_is_written_whole_to_head_too() -> None:
    response = Response(599, [(b"content-length", b"0")], b"")
    for without_body in (False, True):
        written = serialize(response, keep=True, without_body=without_body)
        assert written == b"HTTP/1.1 599 \r\n" + DATE + b"content-length: 0\r\n\r\n"


def test_the_date_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert date_line() == DATE
    monkeypatch.setattr("time.time", lambda: 2.0)
    assert date_line() == DATE.replace(b":01 ", b":02 ")


def test_errors_are_problem_documents() -> None:
    response = gateway_problem(502, "the origin closed the connection")
    assert json.loads(response.body) == {
        "type": "about:blank",
        "title": "Bad Gateway",
        "status": 502,
        "detail": "The origin closed the connection.",
    }
    assert b"allow" not in dict(response.fields)
    assert dict(gateway_problem(405, "x").fields)[b"allow"] == responses.ALLOW
    assert dict(gateway_problem(405, "x", allow=b"GET").fields)[b"allow"] == b"GET"


def test_a_connection_over_a_limit_learns_which() -> None:
    details = [json.loads(crowded_response(event).body)["detail"] for event in ("crowded", "crowded_client")]
    assert details == ["Connection limit reached.", "Connection limit of this client address reached."]


@pytest.mark.parametrize(
    ("target", "method", "answered"),
    [
        (b"/.well-known/traffic-advice", b"GET", "advice"),
        (b"/.well-known/traffic-advice?x", b"HEAD", "advice"),
        (b"/.well-known/traffic-advice", b"POST", "other"),
        (b"/.well-known/traffic-advice.json", b"GET", "other"),
        (b"/", b"GET", "other"),
    ],
)
def test_advice_is_published_at_its_path_alone(target: bytes, method: bytes, answered: str) -> None:
    advice, other = advice_response(b"[]", 600), Response(200, [], b"")
    assert dict(advice.fields)[b"cache-control"] == b"max-age=600"
    found = with_advice(advice, lambda _: other)(request(target, method))
    assert found is {"advice": advice, "other": other}[answered]
    assert with_advice(advice, None)(request(b"/")) is None
