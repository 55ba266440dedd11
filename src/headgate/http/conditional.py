"""Preconditions and ranges of requests (RFC 9110, 13 and 14), evaluated for a stored response."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from headgate.http.date import parse_http_date

ENTITY_TAG = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*+"')
"""9110 8.8.3: an entity tag."""

_CONDITIONAL_FIELDS = frozenset({
    b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range", b"range",
})  # fmt: skip
_STATUSES_WITH_PRECONDITIONS = frozenset({200, 203})
"""13.2.1: preconditions apply only where the response without them is a success; these have all of the content."""
_FIELDS_OF_304 = frozenset({
    b"cache-control", b"content-location", b"date", b"etag", b"expires", b"vary", b"x-content-type-options",
    b"headgate-source",
})  # fmt: skip
"""15.4.5: what a 304 must repeat of the 200; other fields describe content that is not sent."""
_RANGE = re.compile(rb"([0-9]*+)-([0-9]*+)")
_MAX_OFFSET = 1 << 62


class Validators(NamedTuple):
    """What distinguishes two states of a representation."""

    etag: bytes
    """An entity tag; empty where there is none."""
    modified: int | None
    """Seconds since 1970."""


class ConditionalResult(NamedTuple):
    """The status, and for 200 and 206 the bytes to send: from `start` to before `stop`; else 304, 412 or 416."""

    status: int
    start: int
    stop: int


class ConditionalResponse(NamedTuple):
    """A response to a request with preconditions and ranges: of the content, the bytes from `start` to before `stop`.

    412 and 416 have only the fields that the status requires.
    """

    status: int
    fields: list[tuple[bytes, bytes]]
    start: int
    stop: int


def allows_preconditions(status: int) -> bool:
    """Return whether preconditions and ranges apply to a stored response with this status."""
    return status in _STATUSES_WITH_PRECONDITIONS


def apply_preconditions(
    method: bytes,
    request_fields: Iterable[tuple[bytes, bytes]],
    stored: tuple[int, Iterable[tuple[bytes, bytes]]],
    validators: Validators,
    length: int,
) -> ConditionalResponse:
    """Return the response to a GET or HEAD, from the `stored` status and fields, without Content-Length.

    `length` is that of the stored content. Names of fields are in lower case.
    """
    status, fields = stored
    kept = list(fields)
    outcome = ConditionalResult(200, 0, length)
    if allows_preconditions(status):
        outcome = evaluate(method, request_fields, validators, length)
    start, stop = outcome.start, outcome.stop
    if outcome.status == 304:
        return ConditionalResponse(304, [field for field in kept if field[0] in _FIELDS_OF_304], 0, 0)
    if outcome.status == 412:
        return ConditionalResponse(412, [], 0, 0)
    if outcome.status == 416:
        return ConditionalResponse(416, [(b"content-range", b"bytes */%d" % length)], 0, 0)
    if outcome.status == 206:
        status = 206
        kept.append((b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, length)))
    kept.append((b"content-length", b"%d" % (stop - start)))
    return ConditionalResponse(status, kept, start, stop)


def evaluate(
    method: bytes, fields: Iterable[tuple[bytes, bytes]], validators: Validators, length: int
) -> ConditionalResult:
    """Evaluate a GET or HEAD with these `fields` (names in lower case) for a representation of `length` bytes."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in _CONDITIONAL_FIELDS:
            found[name] = found[name] + b", " + value if name in found else value
    if not found:
        return ConditionalResult(200, 0, length)
    status = _precondition(found, validators)
    if status != 200:
        return ConditionalResult(status, 0, 0)
    wanted = found.get(b"range")
    # 14.2: only GET has ranges, and an empty representation has none, because Content-Range cannot name a part of it.
    if wanted is None or method != b"GET" or not length or not _if_range(found.get(b"if-range"), validators):
        return ConditionalResult(200, 0, length)
    return _range(wanted, length)


def _precondition(found: dict[bytes, bytes], validators: Validators) -> int:
    """Evaluate in the order of 13.2.2; returns 200, 304 or 412."""
    etag, modified = validators
    if (match := found.get(b"if-match")) is not None:
        if not _matches(match, etag, weakly=False):
            return 412
    elif (unmodified_since := found.get(b"if-unmodified-since")) is not None:
        moment = parse_http_date(unmodified_since)
        if moment is not None and modified is not None and modified > moment:
            return 412
    if (none_match := found.get(b"if-none-match")) is not None:
        return 304 if _matches(none_match, etag, weakly=True) else 200
    if (modified_since := found.get(b"if-modified-since")) is not None:
        moment = parse_http_date(modified_since)
        if moment is not None and modified is not None and modified <= moment:
            return 304
    return 200


def _matches(listed: bytes, etag: bytes, *, weakly: bool) -> bool:
    """Compare with each tag of a list (8.8.3.2): a weak tag equals a strong one in the weak comparison only."""
    if listed.strip(b"\t ") == b"*":
        return True
    tags: list[bytes] = ENTITY_TAG.findall(listed)
    if weakly:
        opaque = etag.removeprefix(b"W/")
        return bool(opaque) and any(tag.removeprefix(b"W/") == opaque for tag in tags)
    return etag.startswith(b'"') and etag in tags


def _if_range(value: bytes | None, validators: Validators) -> bool:
    """Return whether the client has a part of this representation (13.1.5).

    Only an entity tag proves that: two states may have the same date, and any tool can set a file's modification time.
    """
    return value is None or (value == validators.etag and value.startswith(b'"'))


def _range(wanted: bytes, length: int) -> ConditionalResult:
    """Parse one range (14.1.2). Several ranges get the whole representation, as 14.2 permits."""
    whole = ConditionalResult(200, 0, length)
    unit, _, ranges = wanted.partition(b"=")
    members = [member.strip(b"\t ") for member in ranges.split(b",")]
    members = [member for member in members if member]
    match = _RANGE.fullmatch(members[0]) if len(members) == 1 else None
    if unit.strip(b"\t ").lower() != b"bytes" or match is None or match[0] == b"-":
        return whole
    first, last = (_number(digits) for digits in match.groups())
    if first is None:
        size = min(last or 0, length)
        return ConditionalResult(206, length - size, length) if size else ConditionalResult(416, 0, 0)
    if last is not None and last < first:
        return whole
    if first >= length:
        return ConditionalResult(416, 0, 0)
    return ConditionalResult(206, first, length if last is None else min(last + 1, length))


def _number(digits: bytes) -> int | None:
    """Parse any number of digits; a number larger than any file becomes `_MAX_OFFSET`."""
    if not digits:
        return None
    significant = digits.lstrip(b"0") or b"0"
    return int(significant) if len(significant) < 19 else _MAX_OFFSET
