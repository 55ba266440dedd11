"""Response content that comes from a file: a slice of one state of that file, or an error."""

from typing import Protocol, Self

import msgspec

from headgate.bundle.files.open_file import OpenFile


class BodySource(Protocol):
    """Response content that is read when it is sent."""

    @property
    def length(self) -> int:
        """Bytes."""
        ...

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read the bytes from `start` to before `stop`, or all; raises `OSError` as `OpenFile.read` does."""
        ...

    def cut(self, start: int, stop: int) -> Self:
        """Return the bytes from `start` to before `stop` as a source of their own."""
        ...


class FileSlice(msgspec.Struct, frozen=True):
    """`length` bytes of a file from `offset` on: a `BodySource` that `sendfile` can send."""

    file: OpenFile
    offset: int
    length: int

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read some of it, or all; raises `OSError` as `OpenFile.read` does."""
        return self.file.read_exactly(self.offset + start, (self.length if stop is None else stop) - start)

    def cut(self, start: int, stop: int) -> "FileSlice":
        """Return the slice of this slice from `start` to before `stop`."""
        return FileSlice(self.file, self.offset + start, stop - start)
