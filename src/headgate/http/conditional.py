"""What a request asks of a representation beyond "give it to me": preconditions and ranges (RFC 9110, 13 and 14).

This file knows nothing of files, bundles or sockets: field values in, a status and two offsets out. Nothing a stranger
sends raises.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from headgate.http.date import http_date

__all__ = ["ENTITY_TAG", "Outcome", "Validators", "evaluate"]

ENTITY_TAG = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*+"')
"""9110 8.8.3: an entity tag."""

_ASKING = frozenset({
    b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range", b"range",
})  # fmt: skip
_RANGE = re.compile(rb"([0-9]*+)-([0-9]*+)")
_MOST = 1 << 62


class Validators(NamedTuple):
    """What tells one state of a representation from another."""

    etag: bytes
    """An entity tag; empty for none."""
    modified: int | None
    """Seconds since 1970."""


class Outcome(NamedTuple):
    """What to answer: 200 and the whole, 206 and the bytes from `start` to before `stop`, or 304, 412, 416 and none."""

    status: int
    start: int
    stop: int


def evaluate(method: bytes, fields: Iterable[tuple[bytes, bytes]], validators: Validators, length: int) -> Outcome:
    """Answer the GET or HEAD with these `fields` (names in lower case) for a representation of `length` bytes."""
    asked: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in _ASKING:
            asked[name] = asked[name] + b", " + value if name in asked else value
    if not asked:
        return Outcome(200, 0, length)
    status = _precondition(asked, validators)
    if status != 200:
        return Outcome(status, 0, 0)
    wanted = asked.get(b"range")
    # 14.2: only GET has ranges. An empty representation has none either: 206 could not say which.
    if wanted is None or method != b"GET" or not length or not _if_range(asked.get(b"if-range"), validators):
        return Outcome(200, 0, length)
    return _range(wanted, length)


def _precondition(asked: dict[bytes, bytes], validators: Validators) -> int:
    """Evaluate in the order of 13.2.2; gives 200, 304 or 412."""
    etag, modified = validators
    if (match := asked.get(b"if-match")) is not None:
        if not _matches(match, etag, weakly=False):
            return 412
    elif (unmodified_since := asked.get(b"if-unmodified-since")) is not None:
        moment = http_date(unmodified_since)
        if moment is not None and modified is not None and modified > moment:
            return 412
    if (none_match := asked.get(b"if-none-match")) is not None:
        return 304 if _matches(none_match, etag, weakly=True) else 200
    if (modified_since := asked.get(b"if-modified-since")) is not None:
        moment = http_date(modified_since)
        if moment is not None and modified is not None and modified <= moment:
            return 304
    return 200


def _matches(listed: bytes, etag: bytes, *, weakly: bool) -> bool:
    """Compare with each tag of a list (8.8.3.2): weakly, a weak one equals its strong twin; strongly, none."""
    if listed.strip(b"\t ") == b"*":
        return True
    tags: list[bytes] = ENTITY_TAG.findall(listed)
    if weakly:
        opaque = etag.removeprefix(b"W/")
        return bool(opaque) and any(tag.removeprefix(b"W/") == opaque for tag in tags)
    return etag.startswith(b'"') and etag in tags


def _if_range(value: bytes | None, validators: Validators) -> bool:
    """Say whether a range of what the agent has part of is a range of this (13.1.5).

    Only an entity tag proves that. A date would have to be known not to stand for two states within its second, and
    the time a file was modified at is whatever the tool that wrote it liked.
    """
    return value is None or (value == validators.etag and value.startswith(b'"'))


def _range(wanted: bytes, length: int) -> Outcome:
    """Understand one range (14.1.2). Several are answered with the whole, as 14.2 allows: whoever asks for many little
    pieces of a file gets it once, not in a multipart of their own design."""
    whole = Outcome(200, 0, length)
    unit, _, ranges = wanted.partition(b"=")
    members = [member.strip(b"\t ") for member in ranges.split(b",")]
    members = [member for member in members if member]
    match = _RANGE.fullmatch(members[0]) if len(members) == 1 else None
    if unit.strip(b"\t ").lower() != b"bytes" or match is None or match[0] == b"-":
        return whole
    first, last = (_number(digits) for digits in match.groups())
    if first is None:
        size = min(last or 0, length)
        return Outcome(206, length - size, length) if size else Outcome(416, 0, 0)
    if last is not None and last < first:
        return whole
    if first >= length:
        return Outcome(416, 0, 0)
    return Outcome(206, first, length if last is None else min(last + 1, length))


def _number(digits: bytes) -> int | None:
    """Read digits, however many: more than a file can have bytes is as good as any such number."""
    if not digits:
        return None
    significant = digits.lstrip(b"0") or b"0"
    return int(significant) if len(significant) < 19 else _MOST
