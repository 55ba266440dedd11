"""Payloads kept on disk: one nameless file for any number of them, gone with the last thing that refers to it."""

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from msgspec import Struct

__all__ = ["CHUNK", "Piece", "Spool"]

CHUNK = 1 << 16
"""Bytes read at a time."""


class Spool:
    """A temporary file to which payloads are appended; never more than a chunk of one is in memory.

    Pieces keep the file alive, and it closes after the last of them: nobody has to, so they can be handed on.
    """

    def __init__(self) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the finalizer
        self._length = 0
        weakref.finalize(self, self._file.close)

    def keep(self, chunks: Iterable[bytes]) -> "Piece":
        """Write `chunks` down, and give the piece that they are."""
        offset = self._length
        for chunk in chunks:
            self._file.write(chunk)
            self._length += len(chunk)
        self._file.flush()
        return Piece(self, offset, self._length - offset)

    def read(self, offset: int, length: int) -> bytes:
        """Give the bytes there, fewer where the file ends sooner; where it is being written does not change."""
        return os.pread(self._file.fileno(), length, offset)


class Piece(Struct, frozen=True):
    """A payload in a spool: it can be read any number of times."""

    spool: Spool
    offset: int
    length: int

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes in chunks."""
        end = self.offset + self.length
        for offset in range(self.offset, end, CHUNK):
            yield self.spool.read(offset, min(CHUNK, end - offset))
