"""Filter the headers of stored responses before they are sent.

Bundle headers are untrusted: fields for framing, for one hop and for one user are removed.
"""

import re
from collections.abc import Callable, Mapping

from headgate.errors import HeadgateError
from headgate.http import is_token

HeaderFilter = Callable[[Mapping[str, str], str], dict[str, str]]
"""From stored headers and the origin of the response to the headers that are sent."""

_TEXT = re.compile(r"[\t\x20-\x7e\x80-\xff]*+")

_REMOVED = frozenset({
    # Of this hop and its framing (9110 7.6.1, 9112 6), written by the sender of the message.
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length",
    "http2-settings", "content-range", "accept-ranges",
    # When and by which server the message was made: that is now and here.
    "date", "age", "warning", "via", "x-cache", "headgate-source",
    # For the client with which the exchange was recorded.
    "set-cookie", "set-cookie2", "proxy-authenticate", "proxy-authentication-info", "authentication-info",
    # Other addresses of the origin.
    "alt-svc",
})  # fmt: skip
_REMOVED_IN_LIFEBOAT = frozenset({
    # Freshness, as if the origin had sent it now.
    "expires", "pragma", "cdn-cache-control", "surrogate-control",
    # What holds agents back; this request is answered.
    "retry-after", "ratelimit", "ratelimit-policy", "ddos-bucket-with", "exponential-throttling",
})  # fmt: skip
_WITHOUT_MEANING = {
    206: "a part, and the request is for the whole",
    304: "a response to a condition that the request does not have",
}


class Unservable(HeadgateError):
    """A stored response that cannot be sent; raised and caught in this package."""


def check_status(status: int) -> None:
    """Raise `Unservable` for a status that no final response to a plain GET can have."""
    if not 200 <= status <= 599:
        raise Unservable(f"its status {status} is not that of a final response")
    if status in _WITHOUT_MEANING:
        raise Unservable(f"its status {status} is {_WITHOUT_MEANING[status]}")


def site_headers(headers: Mapping[str, str], origin: str) -> dict[str, str]:
    """Filter the headers of a response of the unpacked site; its redirects to its own origin become relative."""
    kept = _kept(headers)
    location = kept.get("location")
    if location is not None and location.startswith(f"{origin}/"):
        path = location.removeprefix(origin)
        if not path.startswith(("//", "/\\")):  # which would be another host
            kept["location"] = path
    return kept


def lifeboat_headers(headers: Mapping[str, str], _origin: str) -> dict[str, str]:
    """Filter the headers of a response in place of the origin's; it must be revalidated before it is used again."""
    kept = {name: value for name, value in _kept(headers).items() if name not in _REMOVED_IN_LIFEBOAT}
    kept["cache-control"] = "no-store" if "no-store" in headers.get("cache-control", "").lower() else "no-cache"
    kept["headgate-source"] = "bundle"
    return kept


def add_vary(headers: dict[str, str], names: list[str]) -> None:
    """Add the fields that select a variant to Vary."""
    members = [member.strip() for member in headers.get("vary", "").split(",") if member.strip()]
    if "*" in members:
        return
    known = {member.lower() for member in members}
    headers["vary"] = ", ".join(members + [name for name in names if name.lower() not in known])


def field_lines(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return field lines as bytes; raises `Unservable` for one that is invalid in a message (9110 5.1 and 5.5)."""
    for name, value in headers.items():
        if not is_token(name) or not _TEXT.fullmatch(value):
            raise Unservable(f"its field {name!r} is invalid in an HTTP message")
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    # 9110 7.6.1: fields named in Connection are for that connection too.
    named = {member.strip().lower() for member in headers.get("connection", "").split(",")}
    return {name: value for name, value in headers.items() if name not in _REMOVED and name not in named}
