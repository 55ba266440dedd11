"""What a file has of a response's content, mostly a part of it: bytes of one state of that file, or an error.

Nothing is mapped into memory. Whoever cuts a mapped file short ends the processes that read it; one that is read says
so, and only the response under way breaks off.
"""

import errno
import os
import stat
import weakref
from pathlib import Path
from typing import Protocol, Self

import msgspec

__all__ = ["Content", "FileState", "OpenFile", "Part", "file_state"]


class FileState(msgspec.Struct, frozen=True):
    """What tells two states of the file at one path apart."""

    device: int
    inode: int
    size: int
    modified: int
    """Nanoseconds since 1970."""
    changed: int
    """Nanoseconds since 1970: unlike `modified`, nobody can set it back."""


def file_state(path: str | os.PathLike[str]) -> FileState:
    """Look at the file at `path`; raises `OSError` when there is none."""
    return _state(os.stat(path))  # noqa: PTH116 - the same call for a path and for a descriptor


class OpenFile:
    """A regular file as it was when it was opened; closed when nothing refers to it any more.

    So a response under way goes on from the file it began with, whatever stands at its path meanwhile. Raises
    `OSError` for what cannot be opened, and for what is not a regular file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a fifo would not even open
        if not stat.S_ISREG(mode):
            kind = "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
            raise OSError(errno.EINVAL, kind, os.fspath(path))
        self.raw = Path(path).open("rb", buffering=0)  # noqa: SIM115 - the last reader closes it
        """The file itself; whoever reads it moves its position, which `read` does not know."""
        self.state = _state(os.fstat(self.raw.fileno()))
        """As it was when it was opened."""
        weakref.finalize(self, self.raw.close)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.state.size

    def fileno(self) -> int:
        """Give its descriptor."""
        return self.raw.fileno()

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly those bytes; raises `OSError` when the file is another by now."""
        data, handle = b"", self.raw.fileno()
        while len(data) < length and (more := os.pread(handle, length - len(data), offset + len(data))):
            data += more
        if len(data) < length or not self.is_as_opened():
            raise OSError("the file has been written to since it was opened")
        return data

    def is_as_opened(self) -> bool:
        """Say whether nobody has written to it since; that its path leads elsewhere now does not matter."""
        now = os.fstat(self.raw.fileno())
        return (now.st_size, now.st_mtime_ns) == (self.state.size, self.state.modified)


class Content(Protocol):
    """Bytes that can be had from a file."""

    @property
    def length(self) -> int:
        """How many."""
        ...

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read those from `start` to before `stop`, or all; raises `OSError` as `OpenFile.read` does."""
        ...

    def cut(self, start: int, stop: int) -> Self:
        """Give those from `start` to before `stop` as a content of their own."""
        ...


class Part(msgspec.Struct, frozen=True):
    """So many bytes of a file, from an offset on: a `Content` that the system itself can send."""

    file: OpenFile
    offset: int
    length: int

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read some of it, or all; raises `OSError` as `OpenFile.read` does."""
        return self.file.read(self.offset + start, (self.length if stop is None else stop) - start)

    def cut(self, start: int, stop: int) -> "Part":
        """Give the part of this part from `start` to before `stop`."""
        return Part(self.file, self.offset + start, stop - start)


def _state(found: os.stat_result) -> FileState:
    return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
