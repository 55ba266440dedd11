"""Incremental parsers: generators that ask for bytes, and the one loop that drives them.

A parser yields `ReadRequest(offset, length)`, with offsets from the first byte of what it parses, and is sent the bytes
there. Where the stream ends earlier it is sent fewer bytes, or none: the document's "read returns an error" (2.1). The
parser then raises the error of the step that needed them. So memory, files, streams and HTTP ranges share one parser.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from headgate.errors import BundleError

_Result = TypeVar("_Result")

Bytes: TypeAlias = bytes | memoryview
"""What a parser is sent."""


class ReadRequest(NamedTuple):
    """The bytes that a parser needs next: `length` of them from `offset`."""

    offset: int
    length: int


Parser: TypeAlias = Generator[ReadRequest, Bytes, _Result]
"""A parser that returns a `_Result` and raises only `BundleError`."""


class ByteSource(Protocol):
    """Bytes with random access, such as a file; several threads may read at once."""

    size: int

    def read(self, offset: int, length: int) -> memoryview:
        """Return these bytes; fewer where the source ends earlier."""

    def close(self) -> None:
        """Release what was opened."""


def drive(parser: Parser[_Result], read: Callable[[int, int], Bytes], base: int = 0) -> _Result:
    """Run `parser` on the bytes from `base` on, which `read(offset, length)` returns; error offsets count `base`."""
    try:
        offset, length = next(parser)
        while True:
            offset, length = parser.send(read(base + offset, length))
    except StopIteration as done:
        result: _Result = done.value
        return result
    except BundleError as error:
        error.offset += base
        raise


def reads_from(source: bytes | bytearray | memoryview) -> Callable[[int, int], memoryview]:
    """Return a `read` for `drive` that takes slices of `source`."""
    view = memoryview(source).cast("B")
    return lambda offset, length: view[offset : offset + length]
