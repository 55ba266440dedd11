"""What part of a resource to ask a server for, and whether its answer is that part: RFC 9110, section 14.

This file sends nothing. A server is believed only where it says exactly what was asked of it: a byte in the wrong
place is worse than no byte.
"""

import re
from typing import Final, NamedTuple, Protocol

from headgate.errors import FetchError

__all__ = [
    "MEDIA_TYPE",
    "UNCODED",
    "Ask",
    "Counted",
    "Fields",
    "Resource",
    "check_served",
    "check_uncoded",
    "unexpected_status",
]

MEDIA_TYPE: Final = "application/webbundle"

UNCODED: Final = {"Accept-Encoding": "identity"}
"""The field of a request for a bundle: see `check_uncoded`."""

_CONTENT_RANGE: Final = re.compile(r"bytes +([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})", re.ASCII | re.IGNORECASE)
_EMPTY: Final = re.compile(r"bytes +\*/0", re.ASCII | re.IGNORECASE)
_VALIDATORS: Final = ("etag", "last-modified")


class Fields(Protocol):
    """The fields of a response, whichever library they come from: names in any case."""

    def get(self, key: str, default: str, /) -> str:
        """Give the value of a field, or the default."""
        ...


class Ask(NamedTuple):
    """A part of a resource: `length` bytes from `offset`, or its last `length` bytes where `offset` is None."""

    offset: int | None
    length: int

    @property
    def range(self) -> str:
        """The value of the Range field."""
        if self.offset is None:
            return f"bytes=-{self.length}"
        return f"bytes={self.offset}-{self.offset + self.length - 1}"


class Resource:
    """What is believed of the bytes at a URL, pinned by the first answer: every later one must be of the same bytes."""

    def __init__(self, url: str, *, require_nosniff: bool = True) -> None:
        self.url = url
        """Where the first answer came from, once there is one: behind the redirects."""
        self.length: int | None = None
        """Bytes of all of it; None until the first answer."""
        self._require_nosniff = require_nosniff
        self._validators: dict[str, str] = {}

    def fields(self, ask: Ask) -> dict[str, str]:
        """Give the fields of a request for a part; with If-Range where a replaced resource can be told by it."""
        fields = {"Range": ask.range, **UNCODED}
        etag = self._validators.get("etag", "")
        if etag.startswith('"'):  # RFC 9110 13.1.5: a weak one must not be sent
            fields["If-Range"] = etag
        return fields

    def judge(self, ask: Ask, status: int, fields: Fields, *, url: str) -> int | None:
        """Say how many bytes the body of an answer must have, from what was asked on; None for one that is the whole.

        `url` is where it came from. Raises `FetchError` for an answer that is neither.
        """
        is_first = self.length is None
        if is_first:
            self.url = url
        if status == 416 and is_first and _EMPTY.fullmatch(fields.get("content-range", "")):
            self.length = 0
            return 0
        if not is_first and status in (200, 412, 416):
            raise self._changed()
        if status not in (200, 206):
            raise unexpected_status(self.url, status, fields)
        if is_first:
            check_served(self.url, fields, require_nosniff=self._require_nosniff)
        check_uncoded(self.url, fields)
        if status == 200:
            return None
        return self._judge_part(ask, fields)

    def _judge_part(self, ask: Ask, fields: Fields) -> int:
        said = fields.get("content-range", "")
        read = _CONTENT_RANGE.fullmatch(said)
        if read is None:
            raise FetchError(f"{self.url}: answered {ask.range} with the Content-Range {said!r}, which says too little")
        first, last, length = map(int, read.groups())
        start = max(0, length - ask.length) if ask.offset is None else ask.offset
        if self.length not in (None, length) or self._are_others(fields):
            raise self._changed()
        if (first, last) != (start, min(start + ask.length, length) - 1) or first > last:
            raise FetchError(f"{self.url}: asked for {ask.range}, it sent {said!r}: its ranges cannot be trusted")
        if self.length is None:
            self.length = length
            self._validators = {name: value for name in _VALIDATORS if (value := fields.get(name, ""))}
        return last - first + 1

    def _are_others(self, fields: Fields) -> bool:
        """Whether the answer names a validator that is not the one of the first answer."""
        return any(fields.get(name, value) != value for name, value in self._validators.items())

    def _changed(self) -> FetchError:
        return FetchError(f"{self.url}: was replaced while it was being read; open it again")


class Counted:
    """Sees to it that a body has exactly the bytes its head promised."""

    def __init__(self, url: str, length: int) -> None:
        self._url = url
        self._length = length
        self._received = 0

    def take(self, chunk: bytes) -> bytes:
        """Pass a chunk on; raises `FetchError` where it is too much."""
        self._received += len(chunk)
        if self._received > self._length:
            raise FetchError(f"{self._url}: sent more than the {self._length} bytes it said; it cannot be trusted")
        return chunk

    def end(self) -> None:
        """Raise `FetchError` where too little came."""
        if self._received < self._length:
            raise FetchError(f"{self._url}: ended after {self._received} of {self._length} bytes; try again")


def unexpected_status(url: str, status: int, fields: Fields) -> FetchError:
    """Make the error for an answer that is not a bundle's; it keeps the Retry-After."""
    error = FetchError(f"{url}: answered {status}, where a bundle was asked for")
    error.retry_after = fields.get("retry-after", "")
    return error


def check_uncoded(url: str, fields: Fields) -> None:
    """Refuse a body in a content coding: its length says nothing about how much there is to decode or to keep."""
    coding = fields.get("content-encoding", "identity")
    if coding.strip().lower() != "identity":
        raise FetchError(f"{url}: sent {coding!r} bytes, expected them without a content coding")


def check_served(url: str, fields: Fields, *, require_nosniff: bool) -> None:
    """Refuse a bundle served without what the document asks of its server (3.2); not `require_nosniff` takes any.

    "Clients SHOULD reject bundles served without it" (5.2). Raises `FetchError`.
    """
    if not require_nosniff:
        return
    said = fields.get("content-type", "")
    if said.partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise FetchError(
            f"{url}: served as {said or 'nothing'!r}, not as {MEDIA_TYPE}; serve it so, or require no nosniff"
        )
    # Fetch, "determine nosniff": the first of the values counts.
    if fields.get("x-content-type-options", "").partition(",")[0].strip().lower() != "nosniff":
        raise FetchError(
            f"{url}: a bundle served without X-Content-Type-Options: nosniff; add it, or do not require it"
        )
