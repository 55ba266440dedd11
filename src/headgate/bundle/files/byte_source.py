"""Open the bytes of a bundle: in memory, in a file, which is mapped, or in a seekable file that the caller opened.

Several threads may read at once.
"""

import mmap
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO

from headgate.bundle.format.incremental import ByteSource

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | mmap.mmap | BinaryIO
"""What a bundle is opened from: a path, its bytes, or a seekable binary file."""


def open_source(source: Source) -> ByteSource:
    """Open the bytes of `source`; raises `OSError` for a path that cannot be read."""
    if isinstance(source, (str, os.PathLike)):
        return _map(Path(source))
    if isinstance(source, (bytes, bytearray, memoryview, mmap.mmap)):
        return _Memory(source)
    return _File(source)


class _MappedFile(mmap.mmap):
    """A read-only mapping made here: its pages can be released without losing anything."""


def release_pages(view: memoryview) -> None:
    """Release the memory of a file mapped here that was read so far, which counts as this process's until then.

    It is read again when needed. A view of anything else is left alone.
    """
    if isinstance(view.obj, _MappedFile) and hasattr(mmap, "MADV_DONTNEED"):
        view.obj.madvise(mmap.MADV_DONTNEED)


class _Memory:
    """Bytes in memory, or a file mapped there."""

    def __init__(self, source: bytes | bytearray | memoryview | mmap.mmap, mapped: mmap.mmap | None = None) -> None:
        self._view = memoryview(source).cast("B")
        self._mapped = mapped
        self.size = len(self._view)

    def read(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]

    def close(self) -> None:
        self._view.release()
        if self._mapped is not None:
            try:
                self._mapped.close()
            except BufferError:
                # A payload is still in use; the mapping is closed with the last of them.
                self._mapped = None


class _File:
    """A seekable binary file that the caller opened."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # The file has one position, which threads would move between each other's seek and read.
        self._position = threading.Lock()
        self.size = file.seek(0, os.SEEK_END)

    def read(self, offset: int, length: int) -> memoryview:
        left = min(length, self.size - offset)
        if left <= 0:
            return memoryview(b"")
        parts = []
        with self._position:
            self._file.seek(offset)
            while left > 0 and (part := self._file.read(left)):
                parts.append(part)
                left -= len(part)
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        """Leave the file open: the caller opened it."""


def _map(path: Path) -> _Memory:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return _Memory(file.read())
        if not status.st_size:
            return _Memory(b"")
        mapped = _MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _Memory(mapped, mapped)
