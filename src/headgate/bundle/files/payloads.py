"""Payloads of a bundle that is written: their lengths are known when they are added, and checked when they are copied.

The index precedes the responses, so every length must be known before the first byte is written. Bytes are kept by
reference, a file by its path and size. Chunks are kept in a temporary file, a `Spool`, unless their length is given.
"""

import os
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from msgspec import Struct

from headgate.errors import ConfigurationError, HeadgateError, fail_if, reason_of

CHUNK_SIZE = 1 << 16
"""Bytes read at a time."""

COPY_SIZE: Final = 256 * 1024
"""Bytes copied at a time."""


class Spool:
    """A temporary file to which payloads are appended, with at most one chunk in memory.

    Spooled payloads refer to the file, which is closed with the last of them.
    """

    def __init__(self) -> None:
        import tempfile  # a fifth of the import time of headgate.bundle, for few uses

        try:
            self._file: BinaryIO = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by the finalizer
        except OSError as error:
            raise _write_error(error) from error
        self._length = 0
        weakref.finalize(self, self._file.close)

    def append(self, chunks: Iterable[bytes]) -> "SpooledPayload":
        """Append chunks as one payload; if they raise, nothing is kept.

        Raises `HeadgateError` where the disk is full.
        """
        offset = end = self._length
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                try:
                    written = os.pwrite(self._file.fileno(), view, end)
                except OSError as error:
                    raise _write_error(error) from error
                view, end = view[written:], end + written
        self._length = end
        return SpooledPayload(self, offset, end - offset)

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at an offset: at least one, maybe fewer than requested, none at the end."""
        return os.pread(self._file.fileno(), length, offset)


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


def _write_error(error: OSError) -> HeadgateError:
    return HeadgateError(
        f"cannot keep payloads in a temporary file: {reason_of(error)}; set TMPDIR to a directory with room for them"
    )


class FilePayload(Struct, frozen=True, gc=False):
    """A payload in a file, which must not be replaced or change its length until it is copied."""

    path: str
    """Without symbolic links."""
    length: int
    identity: tuple[int, int]
    """Device and inode."""

    def __fspath__(self) -> str:
        return self.path

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes in chunks; raises `HeadgateError` for a file that was replaced or cannot be read."""
        try:
            # A link or FIFO that has replaced the file is neither followed nor waited for.
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb", buffering=0) as file:
                if identity_of(os.fstat(handle)) != self.identity:
                    raise HeadgateError(f"{self.path} was replaced after it was added; the bundle is not written")
                while chunk := file.read(COPY_SIZE):
                    yield chunk
        except OSError as error:
            raise HeadgateError(f"cannot read {self.path}: {reason_of(error)}") from error


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Return the device and the inode of a file."""
    return status.st_dev, status.st_ino


class SizedChunks(Struct, frozen=True):
    """Chunks that are read when the bundle is written, and their announced length."""

    parts: Iterable[bytes | memoryview]
    length: int

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return iter(self.parts)


PreparedPayload: TypeAlias = bytes | memoryview | FilePayload | SpooledPayload | SizedChunks
"""A payload whose length is known."""


def payload_length(payload: PreparedPayload) -> int:
    """Return the number of bytes of a payload."""
    return len(payload) if isinstance(payload, bytes | memoryview) else payload.length


def prepare_payload(payload: object, spool: Callable[[], Spool]) -> PreparedPayload:
    """Return the payload in a form that can wait; `spool` opens the spool if chunks need it.

    Raises `ConfigurationError` for another type than `Payload`, `HeadgateError` for a file that cannot be read.
    """
    match payload:
        case bytes() | FilePayload() | SpooledPayload():
            return payload
        case memoryview() | bytearray():
            view = memoryview(payload)
            return view.cast("B") if view.readonly and view.c_contiguous else bytes(view)
        case str():
            return payload.encode()
        case Path():
            return _file(payload)
        case Iterable():
            return spool().append(_checked(payload))
    raise ConfigurationError(
        f"the payload is {type(payload).__name__}; expected bytes, text, a pathlib.Path, or chunks of bytes"
    )


def payload_chunks(payload: PreparedPayload) -> Iterator[bytes | memoryview]:
    """Yield the payload's bytes; raises `HeadgateError` where their number is not the expected one."""
    if isinstance(payload, bytes | memoryview):
        yield payload
        return
    name = payload.path if isinstance(payload, FilePayload) else "a payload"
    left = length = payload.length
    for part in payload:
        left -= len(part)
        if left < 0:
            raise HeadgateError(f"{name} has more than {length} bytes, its length when it was added: add it again")
        yield part
    if left:
        raise HeadgateError(f"{name} ends {left} bytes short of {length}, its length when it was added: add it again")


def _file(path: Path) -> FilePayload:
    try:
        real = os.path.realpath(path)
        found = os.lstat(real)
    except OSError as error:
        raise HeadgateError(f"cannot read {path}: {reason_of(error)}") from error
    fail_if(not stat.S_ISREG(found.st_mode), f"the payload {path} is not a regular file; pass its chunks instead")
    return FilePayload(real, found.st_size, identity_of(found))


def _checked(parts: Iterable[object]) -> Iterator[bytes]:
    for part in parts:
        if not isinstance(part, bytes | bytearray | memoryview):
            raise ConfigurationError(f"a payload yielded {type(part).__name__}; its chunks are bytes")
        yield bytes(part)
