"""Write to a path, which gets the whole file or keeps what it had, or to a stream without seeking.

A file for a path is written beside it, flushed to the disk, and renamed. What is not a regular file (a named pipe, a
device) is written as a stream.
"""

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO, TypeAlias

from headgate.bundle.files.payloads import COPY_SIZE
from headgate.errors import HeadgateError, fail_if, reason_of

Target: TypeAlias = str | os.PathLike[str] | BinaryIO
"""A path, or a binary file open for writing, which need not be able to seek and stays open."""

Write: TypeAlias = Callable[[bytes | memoryview], object]
"""Writes all bytes that it is given."""

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the number of bytes written, and of all."""


class Output:
    """Joins small pieces, to save system calls."""

    def __init__(self, write: Write, total: int, progress: Progress | None = None) -> None:
        self._write = write
        self._total = total
        self._progress = progress
        self._joined = bytearray()
        self._written = 0

    def put(self, piece: bytes | memoryview) -> None:
        """Write `piece`, now or with others; the caller may reuse its buffer."""
        self._joined += piece
        if len(self._joined) >= COPY_SIZE:
            self.flush()

    def flush(self) -> None:
        """Write the joined pieces."""
        if self._joined:
            self._write(bytes(self._joined))
            self._written += len(self._joined)
            self._joined.clear()
            if self._progress is not None:
                self._progress(self._written, self._total)


def check_target(target: object) -> None:
    """Raise `ConfigurationError` for a path that cannot be written, and what is neither a path nor a binary file."""
    if not isinstance(target, str | os.PathLike):
        fail_if(
            isinstance(target, io.TextIOBase) or not hasattr(target, "write"),
            f"cannot write a bundle to {target!r:.200}; expected a path or a binary file",
        )
        return
    path = Path(target)
    fail_if(path.is_dir(), f"{path} is a directory; name a file in it")
    fail_if(not path.parent.is_dir(), f"{path} cannot be written: the directory {path.parent} does not exist")


@contextmanager
def open_output(target: Target, total: int, progress: Progress | None = None) -> Iterator[Output]:
    """Open the output for `total` bytes; a path has them when the block ends without an exception.

    Raises `HeadgateError` for a path that cannot be written; errors of a stream pass through.
    """
    if isinstance(target, str | os.PathLike):
        with _writing(os.fspath(target)) as write:
            output = Output(write, total, progress)
            yield output
            output.flush()
        return
    output = Output(_write_all_to(target), total, progress)
    yield output
    output.flush()
    target.flush()


def _write_all_to(stream: BinaryIO) -> Write:
    """Return a function that writes all bytes: a raw stream may write fewer."""
    if not isinstance(stream, io.RawIOBase):
        return stream.write

    def write(piece: bytes | memoryview) -> None:
        left = memoryview(piece)
        while left:
            taken = stream.write(left)
            if taken is None:
                raise HeadgateError("the output stream is non-blocking and full; pass a blocking one")
            left = left[taken:]

    return write


@contextmanager
def _writing(target: str) -> Iterator[Write]:
    path = Path(os.path.realpath(target))  # what a symbolic link leads to is replaced, not the link
    with _as_headgate_error(target):
        found = path.stat() if path.exists() else None
        temporary, handle = (
            _create_temporary(path)
            if found is None or stat.S_ISREG(found.st_mode)
            else (None, os.open(path, os.O_WRONLY | os.O_CLOEXEC))
        )
    write_all = _write_all_to(io.FileIO(handle, "wb", closefd=False))

    def write(piece: bytes | memoryview) -> None:
        with _as_headgate_error(target):
            write_all(piece)

    try:
        yield write
        if temporary is not None:
            with _as_headgate_error(target):
                if found is not None:
                    os.fchmod(handle, stat.S_IMODE(found.st_mode))
                os.fsync(handle)
                temporary.replace(path)
    except BaseException:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        raise
    finally:
        os.close(handle)


def _create_temporary(path: Path) -> tuple[Path, int]:
    """Create a file in the same directory, with the default permissions; return it and its descriptor."""
    for number in count():
        temporary = path.with_name(f".headgate-{os.getpid()}-{number}.part")
        with suppress(FileExistsError):
            return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    raise AssertionError  # numbers do not end


@contextmanager
def _as_headgate_error(target: str) -> Iterator[None]:
    """Raise an `OSError` as a `HeadgateError` that names the target."""
    try:
        yield
    except OSError as error:
        raise HeadgateError(f"cannot write {target}: {reason_of(error)}") from error
