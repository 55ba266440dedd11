"""What a bundle stores of a response, and what of it is sent: nothing that frames, and nothing that was for one agent.

This file knows nothing of files or URLs. A bundle is a stranger's: what it stores may not decide where a message ends,
which connection stays, or whose cookie is whose.
"""

import re
from collections.abc import Callable, Mapping

from headgate.errors import HeadgateError
from headgate.http import is_token

__all__ = ["Dress", "Unservable", "check_status", "for_lifeboat", "for_site", "lines", "with_vary"]

Dress = Callable[[Mapping[str, str], str], dict[str, str]]
"""From stored headers, and the origin the response belongs to, to those that are sent."""

_TEXT = re.compile(r"[\t\x20-\x7e\x80-\xff]*+")

_NEVER = frozenset({
    # This hop's and its framing's (9110 7.6.1, 9112 6): written by whoever sends the message.
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length",
    "http2-settings", "content-range", "accept-ranges",
    # When and by whom the message was made: now, and here. A stored Age or Warning tells of another message.
    "date", "age", "warning", "via", "x-cache", "headgate-source",
    # For the agent that the exchange was recorded with, and for nobody else.
    "set-cookie", "set-cookie2", "proxy-authenticate", "proxy-authentication-info", "authentication-info",
    # Where else the origin is, or was, reached: not this server's to say.
    "alt-svc",
})  # fmt: skip
_NOT_IN_LIFEBOAT = frozenset({
    # How long it would be fresh had the origin sent it now, which it did not.
    "expires", "pragma", "cdn-cache-control", "surrogate-control",
    # What holds agents back: they are told about a request that was answered.
    "retry-after", "ratelimit", "ratelimit-policy", "ddos-bucket-with", "exponential-throttling",
})  # fmt: skip
_WITHOUT_MEANING = {
    206: "a part of something, of which the request asked for the whole",
    304: "an answer to a condition that the request did not have",
}


class Unservable(HeadgateError):
    """A stored response that cannot be sent as a response; it never leaves this room."""


def check_status(status: int) -> None:
    """Raise `Unservable` for a status that no final response to a plain GET can have."""
    if not 200 <= status <= 599:
        raise Unservable(f"its status, {status}, is that of no final response")
    if status in _WITHOUT_MEANING:
        raise Unservable(f"its status, {status}, is {_WITHOUT_MEANING[status]}")


def for_site(headers: Mapping[str, str], origin: str) -> dict[str, str]:
    """Dress a response as one of the site that is unpacked here: its own absolute redirects stay here."""
    kept = _kept(headers)
    location = kept.get("location")
    if location is not None and location.startswith(f"{origin}/"):
        path = location.removeprefix(origin)
        if not path.startswith(("//", "/\\")):  # which would be another host
            kept["location"] = path
    return kept


def for_lifeboat(headers: Mapping[str, str], _origin: str) -> dict[str, str]:
    """Dress a response as one that stands in for the origin's own: usable now, and asked for anew next time."""
    kept = {name: value for name, value in _kept(headers).items() if name not in _NOT_IN_LIFEBOAT}
    kept["cache-control"] = "no-store" if "no-store" in headers.get("cache-control", "").lower() else "no-cache"
    kept["headgate-source"] = "bundle"
    return kept


def with_vary(headers: dict[str, str], names: list[str]) -> None:
    """Add the fields that chose among variants to Vary."""
    members = [member.strip() for member in headers.get("vary", "").split(",") if member.strip()]
    if "*" in members:
        return
    known = {member.lower() for member in members}
    headers["vary"] = ", ".join(members + [name for name in names if name.lower() not in known])


def lines(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Give field lines as bytes; raises `Unservable` for one that could not stand in a message (9110 5.1 and 5.5)."""
    for name, value in headers.items():
        if not is_token(name) or not _TEXT.fullmatch(value):
            raise Unservable(f"its field {name!r} cannot stand in an HTTP message")
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    # 9110 7.6.1: what Connection names ends with that connection too.
    named = {member.strip().lower() for member in headers.get("connection", "").split(",")}
    return {name: value for name, value in headers.items() if name not in _NEVER and name not in named}
