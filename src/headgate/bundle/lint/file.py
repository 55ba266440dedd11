"""The bytes that lint reads: from where a bundle begins, and not without end."""

import mmap
import os
from typing import Final, TypeVar

from headgate.bundle.files.byte_source import Source, open_source
from headgate.bundle.format.incremental import Parser

__all__ = ["File"]

_Result = TypeVar("_Result")

_TIMES: Final = 8
"""How often every byte may be read: a few times what a bundle needs whose responses do not overlap."""
_ALWAYS: Final = 1 << 20
_MAPPED: Final = 512
"""Reads whose pages may be in memory at once; the system reads a few on either side of each."""


class File:
    """The bytes of one source; a context manager."""

    def __init__(self, source: Source) -> None:
        self._holder = open_source(source)
        # Only what was mapped here: nobody else can have written to it.
        self._is_ours = isinstance(source, (str, os.PathLike))
        self._left = _TIMES * self._holder.size + _ALWAYS
        self._reads = 0
        self.start = 0
        """Where the bundle begins."""

    @property
    def size(self) -> int:
        """Bytes from the first of the bundle to the last of the file."""
        return self._holder.size - self.start

    @property
    def is_spent(self) -> bool:
        """Whether so much was read that responses must overlap, which strangers can make take any time."""
        return self._left < 0

    def read(self, offset: int, length: int) -> bytes:
        """Give the bytes there, fewer where they end; offsets count from the first byte of the bundle."""
        found = bytes(self._holder.read(self.start + offset, length))
        self._left -= len(found)
        self._reads += 1
        if not self._reads % _MAPPED:
            self._forget()
        return found

    def run(self, parser: Parser[_Result]) -> _Result:
        """Drive a parser."""
        try:
            offset, length = next(parser)
            while True:
                offset, length = parser.send(self.read(offset, length))
        except StopIteration as done:
            result: _Result = done.value
            return result

    def close(self) -> None:
        """Let go of the file."""
        self._holder.close()

    def _forget(self) -> None:
        """Give back the pages of a mapped file that were read: they are read again when they are asked for again."""
        mapped = self._holder.read(0, 0).obj
        if self._is_ours and isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
