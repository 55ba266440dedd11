"""Payloads kept on disk: one nameless file for any number of them, gone with the last thing that refers to it."""

import os
import weakref
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from msgspec import Struct

from headgate.errors import HeadgateError

__all__ = ["CHUNK_SIZE", "SpooledPayload", "Spool"]

CHUNK_SIZE = 1 << 16
"""Bytes read at a time."""


class Spool:
    """A temporary file to which payloads are appended; never more than a chunk of one is in memory.

    Pieces keep the file alive, and it closes after the last of them: nobody has to, so they can be handed on.
    """

    def __init__(self) -> None:
        import tempfile  # a fifth of what importing headgate.bundle takes, for the few that spool

        try:
            self._file: BinaryIO = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by the finalizer
        except OSError as error:
            raise _no_room(error) from error
        self._length = 0
        weakref.finalize(self, self._file.close)

    def keep(self, chunks: Iterable[bytes]) -> "SpooledPayload":
        """Write `chunks` down, and give the piece that they are; of chunks that fail nothing is kept.

        Raises `HeadgateError` when there is no room for them.
        """
        offset = end = self._length
        for chunk in chunks:
            self._write(chunk, end)
            end += len(chunk)
        self._length = end
        return SpooledPayload(self, offset, end - offset)

    def read(self, offset: int, length: int) -> bytes:
        """Give the bytes there: at least one, but maybe fewer than asked for, unless the file ends at `offset`."""
        return os.pread(self._file.fileno(), length, offset)

    def _write(self, chunk: bytes, offset: int) -> None:
        view = memoryview(chunk)
        try:
            while view:
                written = os.pwrite(self._file.fileno(), view, offset)
                view, offset = view[written:], offset + written
        except OSError as error:
            raise _no_room(error) from error


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


def _no_room(error: OSError) -> HeadgateError:
    return HeadgateError(
        f"cannot keep payloads in a temporary file: {error.strerror}; set TMPDIR to a directory with room for them"
    )
