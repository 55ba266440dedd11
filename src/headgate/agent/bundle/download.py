"""A whole bundle that arrives at once: kept in a nameless file, bounded, and mapped when it is all there."""

import mmap
import tempfile
from typing import BinaryIO, Self

from headgate.agent.bundle.parts import Fields
from headgate.errors import FetchError

__all__ = ["MOST_BYTES", "Download"]

MOST_BYTES = 1 << 30
"""Bytes of a bundle that are kept at most, unless more are allowed."""


class Download:
    """A file that grows; a context manager, after which it is gone unless it was mapped."""

    def __init__(self, url: str, fields: Fields, *, most: int) -> None:
        self._url = url
        self._most = most
        self._received = 0
        said = fields.get("content-length", "")
        if said.isascii() and said.isdigit() and int(said[:20]) > most:
            raise self._too_much()
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - this is the context manager

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, chunk: bytes) -> None:
        """Keep a chunk; raises `FetchError` where it is one too many."""
        self._received += len(chunk)
        if self._received > self._most:
            raise self._too_much()
        self._file.write(chunk)

    def mapped(self) -> mmap.mmap | bytes:
        """Give what was kept; the disk it takes is free again when nobody holds it."""
        self._file.flush()
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self._received else b""

    def _too_much(self) -> FetchError:
        return FetchError(f"{self._url}: more than the {self._most} bytes that may be kept; allow more if it is right")
