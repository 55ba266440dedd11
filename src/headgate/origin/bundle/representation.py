"""Answer GET and HEAD with a representation: preconditions and ranges."""

from collections.abc import Iterable

import msgspec

from headgate.http.conditional import Validators, evaluate
from headgate.origin.file_slice import BodySource
from headgate.origin.response import Response, problem

SMALL = 65_536
"""Bytes of content that are read at once; longer content is sent from the file in pieces."""

NOSNIFF = (b"x-content-type-options", b"nosniff")

_WITH_PRECONDITIONS = frozenset({200, 203})
# 9110 15.4.5: what a 304 must repeat of the 200; other fields describe content that is not sent.
_OF_304 = frozenset({
    b"cache-control", b"content-location", b"etag", b"expires", b"vary", b"x-content-type-options", b"headgate-source",
})  # fmt: skip
_PROBLEM = b"application/problem+json"

_TITLES = {412: "Precondition failed", 416: "Range not satisfiable"}
_DETAILS = {
    412: "If-Match or If-Unmodified-Since does not match.",
    416: "The range starts past the end.",
}


class Representation(msgspec.Struct, frozen=True):
    """A response to a request without preconditions and ranges."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    """Names in lower case; without Content-Length, and with the fields of the validators."""
    validators: Validators
    part: BodySource | None
    """The content; None for a status that has none."""


def respond(representation: Representation, method: bytes, fields: Iterable[tuple[bytes, bytes]]) -> Response:
    """Answer a GET or HEAD with these `fields`, with preconditions and ranges.

    Raises `OSError` if the content cannot be read.
    """
    part = representation.part
    own = list(representation.fields)
    if part is None:
        return Response(representation.status, own, b"")
    if representation.status not in _WITH_PRECONDITIONS:
        # 9110 13.2.1: preconditions apply only where the response without them is a success.
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
    response = refusal(status, _TITLES[status], _DETAILS[status])
    if status == 416:
        response.fields.append((b"content-range", b"bytes */%d" % part.length))
    return response


def refusal(status: int, title: str, detail: str, *, allow: bytes = b"") -> Response:
    """Return an error as problem details."""
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
    part.read(0, 1)  # an error now can be answered; later it can only close the connection
    return Response(status, fields, b"", part)
