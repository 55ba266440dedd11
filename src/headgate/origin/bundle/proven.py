"""The content of a payload that carries its proofs, on its way to an agent: records without what is between them."""

from msgspec import Struct

from headgate.bundle.format.merkle_integrity import PayloadLayout
from headgate.origin.file_slice import FileSlice

__all__ = ["ProvenContent"]


class ProvenContent(Struct, frozen=True):
    """The bytes from `start` to before `stop` of the content that is laid out so in `payload`; a `BodySource`."""

    payload: FileSlice
    layout: PayloadLayout
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Bytes."""
        return self.stop - self.start

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read some of it, or all; raises `OSError` as `OpenFile.read` does."""
        end = self.stop if stop is None else self.start + stop
        spans = list(self.layout.spans(self.start + start, end))
        if not spans:
            return b""
        # One piece of the file, of which a little is left out, rather than many small ones.
        begin, (last, length) = spans[0][0], spans[-1]
        stored = memoryview(self.payload.read(begin, last + length))
        return b"".join(stored[offset - begin : offset - begin + length] for offset, length in spans)

    def cut(self, start: int, stop: int) -> "ProvenContent":
        """Give the content of this content from `start` to before `stop`."""
        return ProvenContent(self.payload, self.layout, self.start + start, self.start + stop)
