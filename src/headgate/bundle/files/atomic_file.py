"""Where a bundle is written to: a path, which has the whole bundle or what it had before, or a stream that never seeks.

A bundle for a path grows in a file beside it, is flushed to the disk, and takes the path in one step. What is no
regular file (a named pipe, a device) is written to as a stream.
"""

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from headgate.bundle.files.payloads import COPY_SIZE
from headgate.errors import ConfigurationError, HeadgateError

__all__ = ["Output", "Progress", "Target", "check_target", "open_output"]

Target: TypeAlias = str | os.PathLike[str] | BinaryIO
"""A path, or a binary file open for writing, which need not be able to seek and stays open."""

Write: TypeAlias = Callable[[bytes | memoryview], object]
"""Takes the whole of what it is given."""

Progress: TypeAlias = Callable[[int, int], object]
"""Is told how many bytes have been written, and how many there will be."""

_AT_ONCE: Final = COPY_SIZE // 4
"""Bytes from which on a piece is written alone: copying it to its neighbours would cost more."""


class Output:
    """Gathers what is small, and writes in pieces that are worth a system call."""

    def __init__(self, write: Write, total: int, progress: Progress | None = None) -> None:
        self._write = write
        self._total = total
        self._progress = progress
        self._parts: list[bytes] = []
        self._gathered = 0
        self._written = 0

    def put(self, piece: bytes | memoryview) -> None:
        """Write `piece`, now or with its neighbours; the caller may reuse its buffer when this returns."""
        length = len(piece)
        if length >= _AT_ONCE:
            self.flush()
            self._now(piece)
            return
        self._parts.append(bytes(piece))
        self._gathered += length
        if self._gathered >= COPY_SIZE:
            self.flush()

    def flush(self) -> None:
        """Write what has been gathered."""
        if self._parts:
            self._now(b"".join(self._parts))
            self._parts.clear()
            self._gathered = 0

    def _now(self, piece: bytes | memoryview) -> None:
        self._write(piece)
        self._written += len(piece)
        if self._progress is not None:
            self._progress(self._written, self._total)


def check_target(target: Target) -> None:
    """Refuse at once, with a `ConfigurationError`, a path that no bundle can ever be written to."""
    if not isinstance(target, str | os.PathLike):
        return
    path = Path(target)
    if path.is_dir():
        raise ConfigurationError(f"{path} is a directory; name a file in it")
    if not path.parent.is_dir():
        raise ConfigurationError(f"{path} cannot be written: there is no directory {path.parent}")


@contextmanager
def open_output(target: Target, total: int, progress: Progress | None = None) -> Iterator[Output]:
    """Give the output for a bundle of `total` bytes; a path has it once the block has ended without an exception.

    Raises `HeadgateError` where a path cannot be written; what a stream raises passes through.
    """
    if isinstance(target, str | os.PathLike):
        with _writing(os.fspath(target)) as write:
            output = Output(write, total, progress)
            yield output
            output.flush()
        return
    output = Output(_whole(target), total, progress)
    yield output
    output.flush()
    target.flush()


def _whole(stream: BinaryIO) -> Write:
    """Give a write that takes all it is given: a raw stream takes only what it has room for."""
    if not isinstance(stream, io.RawIOBase):
        return stream.write

    def write(piece: bytes | memoryview) -> None:
        left = memoryview(piece)
        while left:
            taken = stream.write(left)
            if taken is None:
                raise HeadgateError("the stream for the bundle does not wait while it is full; give one that does")
            left = left[taken:]

    return write


@contextmanager
def _writing(target: str) -> Iterator[Write]:
    path = Path(os.path.realpath(target))  # what a symbolic link leads to is replaced, not the link
    with _told(target):
        found = path.stat() if path.exists() else None
        temporary, handle = _beside(path) if found is None or stat.S_ISREG(found.st_mode) else (None, _stream(path))
    try:
        yield partial(_write_all, handle, target)
        if temporary is not None:
            with _told(target):
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


def _beside(path: Path) -> tuple[Path, int]:
    """Make a file in the same directory, with the permissions that the umask leaves; give it and its descriptor."""
    for number in count():
        temporary = path.with_name(f".headgate-{os.getpid()}-{number}.part")
        with suppress(FileExistsError):
            return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    raise AssertionError  # numbers do not end


def _stream(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC)


def _write_all(handle: int, target: str, piece: bytes | memoryview) -> None:
    with _told(target):
        left = memoryview(piece)
        while left:
            left = left[os.write(handle, left) :]


@contextmanager
def _told(target: str) -> Iterator[None]:
    """Say of an error of the system's what could not be done."""
    try:
        yield
    except OSError as error:
        raise HeadgateError(f"cannot write {target}: {error.strerror or error}") from error
