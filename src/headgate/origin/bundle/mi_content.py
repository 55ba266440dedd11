"""The content of a payload that is stored as `mi-sha256-03`: its records without the proofs between them."""

from msgspec import Struct

from headgate.bundle.format.merkle_integrity import PayloadLayout
from headgate.origin.file_slice import FileSlice


class MiContent(Struct, frozen=True):
    """The bytes from `start` to before `stop` of the content in `payload`; a `BodySource`."""

    payload: FileSlice
    layout: PayloadLayout
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Bytes."""
        return self.stop - self.start

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read a part of it, or all; raises `OSError` as `OpenFile.read` does."""
        end = self.stop if stop is None else self.start + stop
        spans = list(self.layout.spans(self.start + start, end))
        if not spans:
            return b""
        # One read of the file, from which the proofs are removed, instead of many short ones.
        begin, (last, length) = spans[0][0], spans[-1]
        stored = memoryview(self.payload.read(begin, last + length))
        return b"".join(stored[offset - begin : offset - begin + length] for offset, length in spans)

    def cut(self, start: int, stop: int) -> "MiContent":
        """Return the part from `start` to before `stop`."""
        return MiContent(self.payload, self.layout, self.start + start, self.start + stop)
