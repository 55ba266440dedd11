"""From what is to be served, and what was asked of it, to a whole response."""

from collections.abc import Iterable

import msgspec

from headgate.http.conditional import Validators, evaluate
from headgate.origin.file_slice import BodySource
from headgate.origin.response import Response, problem

__all__ = ["NOSNIFF", "SMALL", "Representation", "refusal", "respond"]

SMALL = 65_536
"""Bytes of content that are read at once; more is sent from the file, piece by piece."""

NOSNIFF = (b"x-content-type-options", b"nosniff")

_WITH_PRECONDITIONS = frozenset({200, 203})
# 9110 15.4.5: what a 304 must repeat of the 200; the rest tells of content that is not there.
_OF_304 = frozenset({
    b"cache-control", b"content-location", b"etag", b"expires", b"vary", b"x-content-type-options", b"headgate-source",
})  # fmt: skip
_PROBLEM = b"application/problem+json"


class Representation(msgspec.Struct, frozen=True):
    """What there is to answer with when nothing is asked of it."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    """Names in lower case; without Content-Length, and with the fields of the validators."""
    validators: Validators
    part: BodySource | None
    """The content; None for a status that has none."""


def respond(representation: Representation, method: bytes, fields: Iterable[tuple[bytes, bytes]]) -> Response:
    """Answer a GET or HEAD with these `fields`, all preconditions and ranges considered.

    Raises `OSError` when the content cannot be read any more.
    """
    part = representation.part
    own = list(representation.fields)
    if part is None:
        return Response(representation.status, own, b"")
    if representation.status not in _WITH_PRECONDITIONS:
        # 9110 13.2.1: what would not have been a success without preconditions has none.
        return _with_content(representation.status, own, part, method)
    own.append((b"accept-ranges", b"bytes"))
    status, start, stop = evaluate(method, fields, representation.validators, part.length)
    if status == 200:
        return _with_content(representation.status, own, part, method)
    if status == 206:
        own.append((b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, part.length)))
        return _with_content(206, own, part.cut(start, stop), method)
    if status == 304:
        return Response(304, [field for field in own if field[0] in _OF_304], b"")
    response = refusal(status, "What was asked for is not there", _WHY[status])
    if status == 416:
        response.fields.append((b"content-range", b"bytes */%d" % part.length))
    return response


_WHY = {
    412: "It is not, or no longer, in the state that the request is meant for.",
    416: "The range begins behind the last byte.",
}


def refusal(status: int, title: str, detail: str, *, allow: bytes = b"") -> Response:
    """Answer a request that nothing here answers, in plain words."""
    response = problem(status, title, detail, _PROBLEM)
    response.fields.append(NOSNIFF)
    if allow:
        response.fields.append((b"allow", allow))
    return response


def _with_content(status: int, fields: list[tuple[bytes, bytes]], part: BodySource, method: bytes) -> Response:
    fields.append((b"content-length", b"%d" % part.length))
    if method == b"HEAD":
        return Response(status, fields, b"")
    if part.length <= SMALL:
        return Response(status, fields, part.read())
    part.read(0, 1)  # an error now is an answer; while the content is sent, it only ends the connection
    return Response(status, fields, b"", part)
