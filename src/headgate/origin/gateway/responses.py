"""Responses that the gateway makes itself, as bytes."""

import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from headgate.advice import PATH
from headgate.http.h1 import RequestHead
from headgate.origin.response import PROBLEM, Response, problem

Respond = Callable[[RequestHead], Response | None]
"""Answers a request without the origin; returns None for one that it does not answer."""

ADVICE_PATH = PATH.encode()
"""Where agents fetch traffic advice (traffic-advice.txt, section 10.1)."""

ALLOW = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""What a gate lets through: an origin may accept any of them."""


def gateway_problem(status: int, reason: str, *, allow: bytes = ALLOW) -> Response:
    """Make a problem document of the gateway's own; `reason` is a clause (RFC 9457)."""
    response = problem(status, HTTPStatus(status).phrase, f"{reason[:1].upper()}{reason[1:]}.", PROBLEM)
    if status == 405:
        response.fields.append((b"allow", allow))  # 9110 15.5.6
    return response


def crowded_response(event: str) -> Response:
    """Make the response to a connection over a limit: `crowded`, or `crowded_client`."""
    which = "connection limit" if event == "crowded" else "connection limit of this client address"
    return gateway_problem(503, f"{which} reached")


def advice_response(document: bytes, max_age: int) -> Response:
    """Make the response with the traffic advice, fresh for `max_age` seconds (traffic-advice.txt, section 5)."""
    fields = [
        (b"content-type", b"application/trafficadvice+json"),
        (b"content-length", b"%d" % len(document)),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"max-age=%d" % max_age),
    ]
    return Response(200, fields, document)


def with_advice(advice: Response, others: Respond | None) -> Respond:
    """Return what answers requests for traffic advice, and leaves all else to `others`."""

    def respond(request: RequestHead) -> Response | None:
        # Nearly all requests are for something else: one comparison is enough for them.
        if request.target.startswith(ADVICE_PATH) and request.path == ADVICE_PATH and request.method in _SAFE:
            return advice
        return others(request) if others is not None else None

    return respond


_SAFE = frozenset({b"GET", b"HEAD"})


def serialize(response: Response, *, keep: bool, minor: int = 1, without_body: bool = False) -> bytes:
    """Write a response as the bytes of an HTTP/1.1 message, for a client of HTTP/1.`minor`."""
    if response.rendered is None:
        lines = b"".join([b"%b: %b\r\n" % field for field in response.fields])
        response.rendered = _status_line(response.status), b"%b\r\n%b" % (lines, response.body)
    status_line, rest = response.rendered
    if without_body and response.body:
        rest = rest[: -len(response.body)]
    connection = b"Connection: close\r\n"
    if keep:
        connection = b"" if minor else b"Connection: keep-alive\r\n"
    return b"%b%b%b%b" % (status_line, date_line(), connection, rest)


def date_line() -> bytes:
    """Return the field line `Date` for now."""
    return _date_line(int(time.time()))


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    """Write it once a second."""
    return b"Date: %b\r\n" % formatdate(second, usegmt=True).encode()
