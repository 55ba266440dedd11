"""Responses the gateway makes itself, as bytes."""

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

from headgate.limit import Accounting
from headgate.origin.gateway.grammar import Request
from headgate.origin.rejection import Response, problem

if TYPE_CHECKING:
    from headgate.origin.gateway.plan import Plan, Respond
    from headgate.origin.gateway.server import Gateway

__all__ = [
    "ADVICE_PATH",
    "ALLOW",
    "advice_response",
    "answering_advice",
    "date_line",
    "gateway_problem",
    "message",
    "turned_away",
]

ADVICE_PATH = b"/.well-known/traffic-advice"
"""Where agents ask for traffic advice (traffic-advice.txt, section 10.1)."""

_PROBLEM = b"application/problem+json"
ALLOW = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""What a gate lets through: an origin may take any of them."""


def gateway_problem(status: int, reason: str, *, allow: bytes = ALLOW) -> Response:
    """Write a problem document of the gateway's own; `reason` is a clause (RFC 9457)."""
    response = problem(status, HTTPStatus(status).phrase, f"{reason[:1].upper()}{reason[1:]}.", _PROBLEM)
    if status == 405:
        response.fields.append((b"allow", allow))  # 9110 15.5.6
    return response


def advice_response(document: bytes, max_age: int) -> Response:
    """Write the answer to a request for traffic advice, fresh for `max_age` seconds (traffic-advice.txt, section 5)."""
    fields = [
        (b"content-type", b"application/trafficadvice+json"),
        (b"content-length", b"%d" % len(document)),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"max-age=%d" % max_age),
    ]
    return Response(200, fields, document)


def answering_advice(advice: Response, others: "Respond | None") -> "Respond":
    """Give what answers requests for traffic advice, and leaves all else to `others`."""

    def respond(request: Request) -> Response | None:
        if request.path == ADVICE_PATH and request.method in {b"GET", b"HEAD"}:
            return advice
        return others(request) if others is not None else None

    return respond


def turned_away(gateway: "Gateway", plan: "Plan", accounting: Accounting, *, now: float) -> Response:
    """Answer a rejected request: from the lifeboat where there is a place, and else with the rejection."""
    policy, request = plan.policy, plan.request
    saved = policy.lifeboat(request) if policy.lifeboat is not None else None
    if saved is not None:
        gateway.note("lifeboat")
        return saved
    accept = next((value for name, value in request.fields if name == b"accept"), None)
    return policy.reject(accounting, now=now, accept=accept)


def message(response: Response, *, keep: bool, minor: int = 1, without_body: bool = False) -> bytes:
    """Write a response as the bytes of an HTTP/1.1 message, for an agent of HTTP/1.`minor`."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (response.status, _phrase(response.status)), date_line()]
    lines += [b"%b: %b\r\n" % field for field in response.fields]
    if not keep:
        lines.append(b"Connection: close\r\n")
    elif not minor:
        lines.append(b"Connection: keep-alive\r\n")
    lines.append(b"\r\n")
    if not without_body:
        lines.append(response.body)
    return b"".join(lines)


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""


def date_line() -> bytes:
    """Give the field line that says what time it is."""
    return _date_line(int(time.time()))


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    """Write it once a second: it is a quarter of what a rejection costs."""
    return b"Date: %b\r\n" % formatdate(second, usegmt=True).encode()
