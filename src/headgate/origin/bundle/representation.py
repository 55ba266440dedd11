"""Answer GET and HEAD with a representation: preconditions and ranges."""

from collections.abc import Iterable

import msgspec

from headgate.http.conditional import Validators, allows_preconditions, apply_preconditions
from headgate.origin.response import BodySource, Response, problem

SMALL = 65_536
"""Bytes of content that are read at once; longer content is sent from the file in pieces."""

NOSNIFF = (b"x-content-type-options", b"nosniff")

_PROBLEM = b"application/problem+json"

_REFUSALS = {
    412: ("Precondition failed", "If-Match or If-Unmodified-Since does not match."),
    416: ("Range not satisfiable", "The range starts past the end."),
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
    status, own = representation.status, list(representation.fields)
    if part is None:
        return Response(status, own, b"")
    if allows_preconditions(status):
        own.append((b"accept-ranges", b"bytes"))
    status, own, start, stop = apply_preconditions(
        method, fields, (status, own), representation.validators, part.length
    )
    if status in _REFUSALS:
        response = refusal(status, *_REFUSALS[status])
        response.fields += own
        return response
    if status == 304 or method == b"HEAD":
        return Response(status, own, b"")
    part = part if status != 206 else part.cut(start, stop)
    if part.length <= SMALL:
        return Response(status, own, part.read())
    part.read(0, 1)  # an error now can be answered; later it can only close the connection
    return Response(status, own, b"", part)


def refusal(status: int, title: str, detail: str, *, allow: bytes = b"") -> Response:
    """Return an error as problem details."""
    response = problem(status, title, detail, _PROBLEM)
    response.fields.append(NOSNIFF)
    if allow:
        response.fields.append((b"allow", allow))
    return response
