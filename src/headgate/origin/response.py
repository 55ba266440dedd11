"""A whole response as a value: what is answered without the application or origin (problem details: RFC 9457)."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from headgate.http import negotiate, quality
from headgate.origin.file_slice import BodySource

PROBLEM = b"application/problem+json"
_TEXT = b"text/plain"
_JSON = b"application/json"

_MAX_REMEMBERED = 256
"""Bytes of the longest Accept whose verdict is remembered, and how many are."""


class Response(msgspec.Struct):
    """A whole response, ready to be sent."""

    status: int
    """The status code."""

    fields: list[tuple[bytes, bytes]]
    """Field lines, names in lower case; Content-Length is among them."""

    body: bytes
    """The content."""

    source: BodySource | None = None
    """Where the content is read from when it is sent; then `body` is empty."""

    rendered: tuple[bytes, bytes] | None = None
    """Status line, and field lines with the body, as the gateway sent them last; it renders a response once."""


def problem(status: int, title: str, detail: str, accept: bytes | None = None) -> Response:
    """Answer for the gate itself: a line of text, or a problem document where `accept` prefers one."""
    return document(status, (title, detail), {"type": "about:blank"}, is_problem=prefers_problem(accept))


def document(
    status: int, title_and_detail: tuple[str, str], members: Mapping[str, Any], *, is_problem: bool
) -> Response:
    """Write title and detail as a line of text, or with more `members` as a problem document."""
    title, detail = title_and_detail
    if is_problem:
        content = {**members, "title": title, "status": status, "detail": to_text(detail)}
        media_type, body = PROBLEM, msgspec.json.encode(content)
    else:
        media_type, body = b"text/plain; charset=utf-8", f"{title}. {detail}\n".encode("utf-8", "replace")
    fields = [
        (b"content-type", media_type),
        (b"content-length", b"%d" % len(body)),
        # A stored refusal would be given to clients that were not refused.
        (b"cache-control", b"no-store"),
    ]
    return Response(status, fields, body)


def prefers_problem(accept: bytes | None) -> bool:
    """Return whether a problem document suits better than text.

    A client that asks for `application/json` is better off with a problem document than with text, which it did not ask
    for either: its preference for JSON counts, unless it names problem documents itself.
    """
    if accept is None or b"application/" not in accept.lower():
        return False
    if PROBLEM in accept.lower():
        return negotiate(accept, (_TEXT, PROBLEM)) == PROBLEM
    return quality(accept, _JSON) > quality(accept, _TEXT)


def remembered(verdict: Callable[[bytes | None], bool]) -> Callable[[bytes | None], bool]:
    """Return `verdict` with a memory of the short values of Accept that it was asked about last."""
    known = lru_cache(_MAX_REMEMBERED)(verdict)
    return lambda accept: known(accept) if accept is None or len(accept) <= _MAX_REMEMBERED else verdict(accept)


def to_text(text: str) -> str:
    """Replace what UTF-8 cannot write: lone surrogates, from names that were not UTF-8 to begin with."""
    return text.encode("utf-8", "replace").decode()
