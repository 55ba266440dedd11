"""A bundle that is fetched whole: which responses are accepted, and the file that keeps its bytes."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from io import FileIO
from typing import Final

from headgate.bundle.files.open_file import OpenFile
from headgate.errors import FetchError

BUNDLE_MEDIA_TYPE: Final = "application/webbundle"

MAX_BYTES: Final = 1 << 30
"""Default maximum of the bytes of a bundle that are kept."""

UNCODED: Final = {"Accept-Encoding": "identity"}
"""The field of a request for a bundle: the length of a coded body does not limit that of the decoded one."""


class Download(AbstractContextManager["Download"]):
    """A temporary file that grows; a context manager, after which it is gone unless it was taken.

    Raises `FetchError` for a response that is not a whole bundle, served as one: "Clients SHOULD reject bundles served
    without" the header fields of 3.2 (5.2), which `require_nosniff=False` accepts.
    """

    def __init__(
        self, url: str, status: int, fields: Mapping[str, str], *, max_bytes: int, require_nosniff: bool = True
    ) -> None:
        self._url = url
        self._max_bytes = max_bytes
        self._received = 0
        if status != 200:
            error = FetchError(f"{url}: answered {status}, expected a bundle")
            error.retry_after = fields.get("retry-after", "")
            raise error
        if require_nosniff:
            _check_served(url, fields)
        coding = fields.get("content-encoding", "identity")
        if coding.strip().lower() != "identity":
            raise FetchError(f"{url}: content coding {coding!r}, expected none")
        stated = fields.get("content-length", "")
        if stated.isascii() and stated.isdigit() and int(stated[:20]) > max_bytes:
            raise self._too_long()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - this is the context manager

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, chunk: bytes) -> None:
        """Append a chunk; raises `FetchError` where that exceeds the limit."""
        self._received += len(chunk)
        if self._received > self._max_bytes:
            raise self._too_long()
        self._file.write(chunk)

    def take(self) -> OpenFile:
        """Return the file; its disk space is free again when it is no longer used."""
        self._file.flush()
        return OpenFile(FileIO(os.dup(self._file.fileno())))

    def _too_long(self) -> FetchError:
        return FetchError(f"{self._url}: longer than the limit of {self._max_bytes} bytes (max_bytes)")


def _check_served(url: str, fields: Mapping[str, str]) -> None:
    said = fields.get("content-type", "")
    if said.partition(";")[0].strip().lower() != BUNDLE_MEDIA_TYPE:
        raise FetchError(
            f"{url}: expected Content-Type {BUNDLE_MEDIA_TYPE}, got {said or 'none'!r}; "
            "require_nosniff=False accepts it"
        )
    # Fetch, "determine nosniff": the first of the values counts.
    if fields.get("x-content-type-options", "").partition(",")[0].strip().lower() != "nosniff":
        raise FetchError(f"{url}: expected X-Content-Type-Options: nosniff; require_nosniff=False accepts it")
