"""Requests for parts of a resource, and whether a response is that part (RFC 9110, section 14).

Nothing here sends anything. A 206 is accepted only if its Content-Range equals the requested range.
"""

import re
from typing import Final, NamedTuple, Protocol

from headgate.errors import FetchError

BUNDLE_MEDIA_TYPE: Final = "application/webbundle"

UNCODED: Final = {"Accept-Encoding": "identity"}
"""The field of a request for a bundle: see `check_uncoded`."""

_CONTENT_RANGE: Final = re.compile(r"bytes +([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})", re.ASCII | re.IGNORECASE)
_EMPTY: Final = re.compile(r"bytes +\*/0", re.ASCII | re.IGNORECASE)
_VALIDATORS: Final = ("etag", "last-modified")


class Fields(Protocol):
    """The fields of a response of any library; names in any case."""

    def get(self, key: str, default: str, /) -> str:
        """Return the value of a field, or the default."""
        ...


class RangeRequest(NamedTuple):
    """A request for `length` bytes of a resource from `offset`, or for its last where `offset` is None."""

    offset: int | None
    length: int

    @property
    def range(self) -> str:
        """The value of the Range field."""
        if self.offset is None:
            return f"bytes=-{self.length}"
        return f"bytes={self.offset}-{self.offset + self.length - 1}"


class Resource:
    """The resource at a URL, identified by its first response: every later one must be of the same bytes."""

    def __init__(self, url: str, *, require_nosniff: bool = True) -> None:
        self.url = url
        """Where the first response came from, after redirects; before it, the URL requested."""
        self.length: int | None = None
        """Bytes of the whole resource; None until the first response."""
        self._require_nosniff = require_nosniff
        self._validators: dict[str, str] = {}

    def fields(self, request: RangeRequest) -> dict[str, str]:
        """Return the fields of a request for a part; with If-Range where the resource has a strong entity tag."""
        fields = {"Range": request.range, **UNCODED}
        etag = self._validators.get("etag", "")
        if etag.startswith('"'):  # RFC 9110 13.1.5: a weak one must not be sent
            fields["If-Range"] = etag
        return fields

    def judge(self, request: RangeRequest, status: int, fields: Fields, *, url: str) -> int | None:
        """Return how many bytes the body of a response must have; None where it is the whole resource.

        `url` is where it came from. Raises `FetchError` for a response that is neither part nor whole.
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
        return self._judge_part(request, fields)

    def _judge_part(self, request: RangeRequest, fields: Fields) -> int:
        said = fields.get("content-range", "")
        read = _CONTENT_RANGE.fullmatch(said)
        if read is None:
            raise FetchError(f"{self.url}: invalid Content-Range {said!r} in response to {request.range}")
        first, last, length = map(int, read.groups())
        start = max(0, length - request.length) if request.offset is None else request.offset
        if self.length not in (None, length) or self._validators_differ(fields):
            raise self._changed()
        if (first, last) != (start, min(start + request.length, length) - 1) or first > last:
            raise FetchError(f"{self.url}: requested {request.range}, got Content-Range {said!r}")
        if self.length is None:
            self.length = length
            self._validators = {name: value for name in _VALIDATORS if (value := fields.get(name, ""))}
        return last - first + 1

    def _validators_differ(self, fields: Fields) -> bool:
        """Return whether a validator differs from that of the first response."""
        return any(fields.get(name, value) != value for name, value in self._validators.items())

    def _changed(self) -> FetchError:
        return FetchError(f"{self.url}: was replaced while it was being read; open it again")


class LengthChecked:
    """Checks that a body has exactly the length that its head states."""

    def __init__(self, url: str, length: int) -> None:
        self._url = url
        self._length = length
        self._received = 0

    def take(self, chunk: bytes) -> bytes:
        """Return the chunk; raises `FetchError` where the body is too long."""
        self._received += len(chunk)
        if self._received > self._length:
            raise FetchError(f"{self._url}: the body is longer than the {self._length} bytes announced")
        return chunk

    def end(self) -> None:
        """Raise `FetchError` where the body is too short."""
        if self._received < self._length:
            raise FetchError(f"{self._url}: the body ended after {self._received} of {self._length} bytes; try again")


def unexpected_status(url: str, status: int, fields: Fields) -> FetchError:
    """Return the error for a response without a bundle; it keeps the Retry-After."""
    error = FetchError(f"{url}: answered {status}, expected a bundle")
    error.retry_after = fields.get("retry-after", "")
    return error


def check_uncoded(url: str, fields: Fields) -> None:
    """Refuse a body in a content coding, whose length does not limit that of the decoded body."""
    coding = fields.get("content-encoding", "identity")
    if coding.strip().lower() != "identity":
        raise FetchError(f"{url}: content coding {coding!r}, expected none")


def check_served(url: str, fields: Fields, *, require_nosniff: bool) -> None:
    """Refuse a bundle served without the header fields that the document requires (3.2), if `require_nosniff`.

    "Clients SHOULD reject bundles served without it" (5.2). Raises `FetchError`.
    """
    if not require_nosniff:
        return
    said = fields.get("content-type", "")
    if said.partition(";")[0].strip().lower() != BUNDLE_MEDIA_TYPE:
        raise FetchError(
            f"{url}: expected Content-Type {BUNDLE_MEDIA_TYPE}, got {said or 'none'!r}; "
            "require_nosniff=False accepts it"
        )
    # Fetch, "determine nosniff": the first of the values counts.
    if fields.get("x-content-type-options", "").partition(",")[0].strip().lower() != "nosniff":
        raise FetchError(f"{url}: expected X-Content-Type-Options: nosniff; require_nosniff=False accepts it")
