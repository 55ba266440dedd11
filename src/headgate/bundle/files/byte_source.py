"""Open the bytes of a bundle: in memory, in a file at a path, or in a seekable file that the caller opened.

Several threads may read at once.
"""

import os
import re
import stat
import threading
from pathlib import Path
from typing import BinaryIO, Final

from headgate.bundle.files.open_file import CHANGED, CLOSED, OpenFile
from headgate.bundle.format.incremental import ByteSource
from headgate.errors import ConfigurationError, fail_if

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | OpenFile
"""What a bundle is opened from: a path, its bytes, or a seekable binary file."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_MAX_SHOWN: Final = 200


def open_source(source: Source) -> ByteSource:
    """Open the bytes of `source`.

    Raises `OSError` for a path that cannot be read, and `ConfigurationError` for another type, a URL, and a file that
    is closed, a text file or not seekable.
    """
    if isinstance(source, str) and _URL.match(source):
        raise ConfigurationError(
            f"{source[:_MAX_SHOWN]!r} is a URL; expected a path, bytes or a file: fetch the bundle first"
        )
    if isinstance(source, OpenFile):
        return source
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return OpenFile(path) if stat.S_ISREG(path.stat().st_mode) else _Memory(path.read_bytes())
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _Memory(source)
    _check_file(source)
    return _File(source)


def _check_file(file: BinaryIO) -> None:
    """Raise `ConfigurationError` unless `file` is an open, seekable binary file."""
    fault = ""
    try:
        file.seek(0)
        if not isinstance(file.read(0), bytes):
            fault = "a text file; open it in the mode 'rb'"
    except (AttributeError, ValueError) as error:  # io.UnsupportedOperation is a ValueError
        fault = "not a file" if isinstance(error, AttributeError) else str(error)
    fail_if(
        fault,
        f"cannot open a bundle in {file!r:.{_MAX_SHOWN}} ({fault}); expected a path, bytes or an open, seekable "
        "binary file",
    )


class _Memory:
    """Bytes in memory."""

    def __init__(self, source: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(source).cast("B")
        self.size = len(self._view)

    def read(self, offset: int, length: int) -> memoryview:
        try:
            return self._view[offset : offset + length]
        except ValueError:
            raise ConfigurationError(CLOSED) from None

    def close(self) -> None:
        self._view.release()


class _File:
    """A seekable binary file that the caller opened."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._is_closed = False
        # The file has one position, which threads would move between each other's seek and read.
        self._position = threading.Lock()
        self.size = file.seek(0, os.SEEK_END)

    def read(self, offset: int, length: int) -> memoryview:
        left = min(length, self.size - offset)
        if left <= 0:
            return memoryview(b"")
        parts = []
        fail_if(self._is_closed, CLOSED)
        with self._position:
            try:
                self._file.seek(offset)
            except ValueError as error:
                raise ConfigurationError(f"cannot read the bundle in {self._file!r}: {error}") from None
            while left > 0 and (part := self._file.read(left)):
                parts.append(part)
                left -= len(part)
        if left > 0:
            raise OSError(CHANGED)
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        """Read no more; the file stays open, because the caller opened it."""
        self._is_closed = True
