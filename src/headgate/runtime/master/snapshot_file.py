"""The file of a snapshot: its format, and how it is replaced without ever losing the previous one.

A line with the version, then frames: the length and the CRC-32 of a msgpack value (both 4 bytes, big-endian), and the
value. The first value is a `Header`, the last one the number of histories; each between them is a `Part`. The format is
documented in docs/reference/snapshot.md. This module does not know when a snapshot is made, nor what is restored of it.
"""

import errno
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

import msgspec
from msgspec import Meta

from headgate.limit import Domain

_NAME: Final = b"headgate snapshot "
_LINE: Final = _NAME + b"1\n"
_FRAME: Final = struct.Struct(">II")
_LAST: Final = 1e12
"""Seconds; doubles of this size still count tenths of milliseconds."""
_MAX_FRAME: Final = 64 * 1024 * 1024
"""Maximum bytes of a value; a larger length is an error in the file. A million timestamps take 9 MB."""


class InvalidSnapshot(ValueError):
    """The file is damaged, incomplete or of another version."""


class SnapshotDomain(msgspec.Struct, frozen=True):
    """A domain: what must be equal for its histories to have a meaning."""

    name: bytes
    algorithm: str
    rules: tuple[str, ...]

    @classmethod
    def of(cls, domain: Domain) -> "SnapshotDomain":
        """Return what identifies the histories of a domain."""
        name = domain.name.encode("utf-8", "surrogateescape")
        return cls(name, domain.algorithm, tuple(map(str, domain.rules)))


class Header(msgspec.Struct, frozen=True):
    """The first value of a file."""

    saved: Annotated[float, Meta(ge=0, le=_LAST)]
    """Wall-clock time at the start of the snapshot, seconds since 1970."""
    behind: Annotated[float, Meta(ge=0, le=_LAST)]
    """Seconds by which the clock of the instants is ahead of the wall clock (`SteadyClock.behind`)."""
    latest: Annotated[float, Meta(ge=0, le=_LAST)]
    """The latest instant of that clock (`SteadyClock.latest`)."""
    identity: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    """By which gatekeepers know the master, 16 hexadecimal digits: they send it only what they have not sent it yet."""
    final: bool
    """Whether the master had stopped, so that it received nothing after what the file has."""
    byteorder: Literal["little", "big"]
    """Of the doubles in histories."""
    domains: tuple[SnapshotDomain, ...]


Part = tuple[int, list[bytes]]
"""The index of a domain in the header, and histories: identifiers and numbers alternately (`Master.export`)."""

_encoder = msgspec.msgpack.Encoder()
_header = msgspec.msgpack.Decoder(Header)
_part = msgspec.msgpack.Decoder(Part | int)


class SnapshotWriter:
    """Writes a file beside `path`; `commit` puts it in its place. Only its owner may read it.

    All methods raise `OSError` if the system refuses, such as on a full disk; then call `discard`.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._new = path.with_name(f".{path.name}.new")
        self._histories = 0
        self._file = os.fdopen(_open_alone(self._new), "wb")
        try:
            self._file.write(_LINE)
            self._write(header)
        except BaseException:
            self.discard()
            raise

    def add(self, part: Part) -> None:
        """Write histories."""
        self._write(part)
        self._histories += len(part[1]) // 2

    def commit(self) -> None:
        """Complete the file, and replace the previous one by it, so that one of the two survives a crash."""
        self._write(self._histories)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._new.replace(self._path)
        self._file.close()
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def discard(self) -> None:
        """Remove the incomplete file; the previous one stays."""
        with suppress(OSError):
            self._new.unlink(missing_ok=True)
        with suppress(OSError):  # of a full disk
            self._file.close()

    def _write(self, value: object) -> None:
        content = _encoder.encode(value)
        self._file.write(_FRAME.pack(len(content), zlib.crc32(content)))
        self._file.write(content)


def _open_alone(path: Path) -> int:
    """Open an empty file that only its owner may read; a file that a killed process left behind is used again.

    Raises `BlockingIOError` if another process writes it: two masters with one file would mix their values.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise BlockingIOError(errno.EWOULDBLOCK, "another process has just renamed it", str(path))
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class SnapshotReader:
    """Reads a file, value by value. Raises `InvalidSnapshot` for one that is not whole."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        line = file.readline(len(_LINE) + 1)
        if not line.startswith(_NAME):
            raise InvalidSnapshot("not a snapshot of headgate")
        if line != _LINE:
            version = line.removeprefix(_NAME).rstrip(b"\n")
            raise InvalidSnapshot(f"unknown version {version.decode('ascii', 'replace')!r}; expected '1'")
        try:
            self.header = _header.decode(self._frame())
            """The first value."""
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidSnapshot(f"invalid header ({error})") from None

    def parts(self) -> Iterator[Part]:
        """Yield the histories; the error of a file that is not whole may come after all of them."""
        count = 0
        while True:
            try:
                value = _part.decode(self._frame())
            except msgspec.DecodeError as error:
                raise InvalidSnapshot(f"invalid value ({error})") from None
            if isinstance(value, int):
                break
            if not 0 <= value[0] < len(self.header.domains):
                raise InvalidSnapshot(f"unknown domain {value[0]}")
            count += len(value[1]) // 2
            yield value
        if value != count:
            raise InvalidSnapshot(f"{count} histories; expected {value}")
        if self._file.read(1):
            raise InvalidSnapshot("more bytes after the end")

    def _frame(self) -> bytes:
        start = self._file.read(_FRAME.size)
        if len(start) < _FRAME.size:
            raise InvalidSnapshot("the end is missing")
        size, checksum = _FRAME.unpack(start)
        if size > _MAX_FRAME:
            raise InvalidSnapshot(f"a value of {size} bytes; expected at most {_MAX_FRAME}")
        content = self._file.read(size)
        if len(content) < size:
            raise InvalidSnapshot("the end is missing")
        if zlib.crc32(content) != checksum:
            raise InvalidSnapshot("wrong checksum")
        return content
