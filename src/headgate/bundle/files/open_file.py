"""Files that are read, not mapped: truncating a mapped file kills its readers, truncating these is an `OSError`."""

import errno
import os
import stat
import weakref
from io import FileIO
from typing import Final

import msgspec

from headgate.errors import fail_if

CLOSED: Final = "the bundle is closed; open it again to read from it"
CHANGED: Final = "the file has been written to since it was opened"


class FileState(msgspec.Struct, frozen=True):
    """The state of a file, to notice that it changed or was replaced."""

    device: int
    inode: int
    size: int
    modified: int
    """Nanoseconds since 1970."""
    changed: int
    """Nanoseconds since 1970: unlike `modified`, it cannot be set back."""


def file_state(path: str | os.PathLike[str]) -> FileState | None:
    """Return the state of the file at `path`; None without one."""
    try:
        return _state(os.stat(path))  # noqa: PTH116 - the same call for a path and for a descriptor
    except OSError:
        return None


class OpenFile:
    """An open regular file, closed when its last reference is gone; a `ByteSource`.

    What uses it keeps its file when another one replaces it at its path. Raises `OSError` for a file that cannot be
    opened, and for anything but a regular file.
    """

    def __init__(self, path: str | os.PathLike[str] | FileIO) -> None:
        if not isinstance(path, FileIO):
            mode = os.stat(path).st_mode  # noqa: PTH116 - a fifo would not even open
            if not stat.S_ISREG(mode):
                kind = "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
                raise OSError(errno.EINVAL, kind, os.fspath(path))
            path = FileIO(path)
        self.raw = path
        """The file itself; reading it moves its position, which `read` does not use."""
        self.state = _state(os.fstat(self.raw.fileno()))
        """Its state when it was opened."""
        self.size = self.state.size
        """Bytes."""
        weakref.finalize(self, self.raw.close)

    def fileno(self) -> int:
        """Return its descriptor."""
        return self.raw.fileno()

    def read(self, offset: int, length: int) -> memoryview:
        """Read these bytes, fewer at the end of the file; raises `OSError` when the file has changed."""
        return memoryview(self.read_exactly(offset, max(0, min(length, self.size - offset))))

    def read_exactly(self, offset: int, length: int) -> bytes:
        """Read these bytes; raises `OSError` when the file has changed, or ends before."""
        fail_if(self.raw.closed, CLOSED)
        data, handle = b"", self.raw.fileno()
        while len(data) < length and (more := os.pread(handle, length - len(data), offset + len(data))):
            data += more
        if len(data) < length or not self.is_unchanged():
            raise OSError(f"{self.raw.name!s}: {CHANGED}")
        return data

    def is_unchanged(self) -> bool:
        """Return whether it has not been written to since it was opened; another file at its path does not matter."""
        now = os.fstat(self.raw.fileno())
        return (now.st_size, now.st_mtime_ns) == (self.state.size, self.state.modified)

    def close(self) -> None:
        """Close it; a later read is a `ConfigurationError`."""
        self.raw.close()


def _state(found: os.stat_result) -> FileState:
    return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
