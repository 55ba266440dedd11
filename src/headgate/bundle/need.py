"""What a parser asks of the bytes it reads, and what it calls a parser at all.

A parser is a generator: it yields `Need(offset, length)`, offsets counted from the first byte of the bundle, and is
sent the bytes there. Where the stream ends sooner it is sent fewer, or none: that is the document's "read returns an
error" (2.1), and the parser, not the driver, says which step that breaks. Drivers stay ten lines long.
"""

from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

__all__ = ["Bytes", "Need", "Parser", "run"]

_Result = TypeVar("_Result")

Bytes: TypeAlias = bytes | memoryview
"""What a driver sends."""


class Need(NamedTuple):
    """The bytes a parser wants next: `length` of them from `offset`, from the first byte of the bundle."""

    offset: int
    length: int


Parser: TypeAlias = Generator[Need, Bytes, _Result]
"""A parser that returns a `_Result`, and raises nothing but `BundleError`."""


def run(parser: Parser[_Result], source: memoryview) -> _Result:
    """Drive `parser` with bytes that are all there."""
    try:
        offset, length = next(parser)
        while True:
            offset, length = parser.send(source[offset : offset + length])
    except StopIteration as done:
        result: _Result = done.value
        return result
