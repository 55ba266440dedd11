"""Payloads kept on disk: one temporary file for any number of them, deleted with the last reference to it."""

import os
import weakref
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from msgspec import Struct

from headgate.errors import HeadgateError

CHUNK_SIZE = 1 << 16
"""Bytes read at a time."""


class Spool:
    """A temporary file to which payloads are appended, with at most one chunk in memory.

    Spooled payloads refer to the file, which is closed with the last of them.
    """

    def __init__(self) -> None:
        import tempfile  # a fifth of the import time of headgate.bundle, for few uses

        try:
            self._file: BinaryIO = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by the finalizer
        except OSError as error:
            raise _write_error(error) from error
        self._length = 0
        weakref.finalize(self, self._file.close)

    def append(self, chunks: Iterable[bytes]) -> "SpooledPayload":
        """Append chunks as one payload; if they raise, nothing is kept.

        Raises `HeadgateError` where the disk is full.
        """
        offset = end = self._length
        for chunk in chunks:
            self._write(chunk, end)
            end += len(chunk)
        self._length = end
        return SpooledPayload(self, offset, end - offset)

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at an offset: at least one, maybe fewer than requested, none at the end."""
        return os.pread(self._file.fileno(), length, offset)

    def _write(self, chunk: bytes, offset: int) -> None:
        view = memoryview(chunk)
        try:
            while view:
                written = os.pwrite(self._file.fileno(), view, offset)
                view, offset = view[written:], offset + written
        except OSError as error:
            raise _write_error(error) from error


class SpooledPayload(Struct, frozen=True):
    """A payload in a spool: it can be read any number of times."""

    spool: Spool
    offset: int
    length: int

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes in chunks."""
        offset, end = self.offset, self.offset + self.length
        while offset < end and (chunk := self.spool.read(offset, min(CHUNK_SIZE, end - offset))):
            yield chunk
            offset += len(chunk)


def _write_error(error: OSError) -> HeadgateError:
    return HeadgateError(
        f"cannot keep payloads in a temporary file: {error.strerror}; set TMPDIR to a directory with room for them"
    )
