"""Deterministically encoded CBOR (RFC 8949, 4.2.1; the document's section 3.5): an encoder and a strict decoder.

`Items` decodes along a CDDL rule: each call reads the next item, which must be of the expected kind and in its only
encoding. Payloads are not decoded here.
"""

import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from headgate.bundle.format.incremental import Parser, ReadRequest

_Key = TypeVar("_Key")

UINT: Final = 0
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
MAP: Final = 5
TAG: Final = 6
_SIMPLE: Final = 7
_KINDS = ("an unsigned integer", "a negative integer", "a byte string", "a text string", "an array", "a map", "a tag",
          "a simple value or float")  # fmt: skip

_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}
"""Bytes of argument that follow the first byte, by its low five bits."""
_SHORTEST = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
"""The minimum argument, by the same five bits."""
_from_bytes = int.from_bytes
LONGEST_HEAD: Final = 9
"""Bytes of the longest head of a CBOR item."""
MAX_NESTING: Final = 16
"""Levels of an item that is read over."""
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}


class StepError(Exception):
    """Bytes that break a step of the document: the reason, the step, and the byte of the source."""

    def __init__(self, reason: str, step: str, offset: int) -> None:
        super().__init__(reason, step, offset)
        self.reason = reason
        self.step = step
        self.offset = offset


class CborError(StepError):
    """A malformed item: the step is one of 3.5, without the step that decodes the item."""


class NotDeterministic(CborError):
    """A well-formed head that is not deterministic: too long, or of indefinite length."""


def head(major: int, argument: int) -> bytes:
    """Encode the shortest head for this major type and argument, which is below 2**64."""
    first = major << 5
    if argument < 24:
        return bytes((first | argument,))
    if argument < 1 << 8:
        return bytes((first | 24, argument))
    if argument < 1 << 16:
        return struct.pack(">BH", first | 25, argument)
    if argument < 1 << 32:
        return struct.pack(">BI", first | 26, argument)
    return struct.pack(">BQ", first | 27, argument)


def data(content: bytes) -> bytes:
    """Encode a byte string."""
    return head(BYTES, len(content)) + content


def text(content: str) -> bytes:
    """Encode a text string."""
    encoded = content.encode()
    return head(TEXT, len(encoded)) + encoded


def array(items: Sequence[bytes]) -> bytes:
    """Encode an array of encoded items."""
    return head(ARRAY, len(items)) + b"".join(items)


def encode(value: Any) -> bytes:
    """Encode non-negative integers, bytes, text, sequences, and mappings, whose keys are sorted."""
    match value:
        case bool():
            return b"\xf5" if value else b"\xf4"
        case int() if 0 <= value < 1 << 64:
            return head(UINT, value)
        case bytes() | bytearray() | memoryview():
            return data(bytes(value))
        case str():
            return text(value)
        case Mapping():
            entries = sorted((encode(key), encode(member)) for key, member in value.items())
            return head(MAP, len(entries)) + b"".join(key + member for key, member in entries)
        case Sequence():
            return array([encode(member) for member in value])
    raise TypeError(f"{value!r} cannot be encoded")


def read_head(source: bytes | memoryview, position: int = 0) -> tuple[int, int, int]:
    """Parse the type and argument of a CBOR item (3.5.3); return both, and where its contents begin.

    Raises `CborError` for a head that is cut, invalid or not the shortest.
    """
    try:
        first = source[position]
    except IndexError:
        raise CborError("the bytes end where a CBOR item should begin", "3.5.3 step 1", position) from None
    major, low = first >> 5, first & 0x1F
    if low < 24:
        return major, low, position + 1
    if low > 27:
        meant = "an indefinite length" if low == 31 else "reserved"
        kind = NotDeterministic if low == 31 and BYTES <= major <= MAP else CborError
        raise kind(f"the head 0x{first:02x} is {meant}", "3.5.3 step 3", position)
    begin = position + 1
    end = begin + (1 << low - 24)
    content = source[begin:end]
    if len(content) < end - begin:
        raise CborError(f"the head 0x{first:02x} is cut", "3.5.3 step 3", position)
    argument = _from_bytes(content)
    if argument < _SHORTEST[low] and major != _SIMPLE:  # the argument of a float is its value
        fault = f"{argument} is written in {end - begin} bytes, which is not its shortest form"
        raise NotDeterministic(fault, "3.5.3 step 3", position)
    return major, argument, end


def head_parser(position: int) -> Parser[tuple[int, int, bytes]]:
    """Parse the type and argument of the item at `position` of a stream (3.5.3), and request no byte after its head.

    Returns both, and the bytes of the head; raises `CborError`.
    """
    encoded = bytes((yield ReadRequest(position, 1)))
    if encoded and (more := _WIDTHS.get(encoded[0] & 0x1F, 0)):
        encoded += yield ReadRequest(position + 1, more)
    try:
        major, argument, _ = read_head(encoded)
    except CborError as error:
        error.offset += position
        raise
    return major, argument, encoded


def string_head_parser(position: int) -> Parser[tuple[int, int]]:
    """Get the length of a CBOR bytestring header (3.5.2), and where the contents begin; raises `CborError`."""
    major, length, encoded = yield from head_parser(position)
    if major != BYTES:
        raise CborError(f"got {_KINDS[major]}, expected a byte string", "3.5.2 step 2", position)
    return length, position + len(encoded)


class Items:
    """Decodes one known-length item along a CDDL rule (3.5.1): each method reads the next item, or refuses it."""

    __slots__ = ("key_start", "position", "source")

    def __init__(self, source: bytes, position: int = 0) -> None:
        self.source = source
        self.position = position
        self.key_start = position
        """Where the key begins that `entries` yielded last."""

    def head(self, wanted: int) -> int:
        """Read a head of this major type, and return its argument: for a map, its entries."""
        start = self.position
        major, argument = self._any_head()
        if major != wanted:
            raise CborError(f"got {_KINDS[major]}, expected {_KINDS[wanted]}", "3.5.1 step 5", start)
        return argument

    def uint(self) -> int:
        """Read an unsigned integer."""
        return self.head(UINT)

    def data(self) -> bytes:
        """Read a byte string."""
        return self._content(self.head(BYTES))

    def text(self) -> str:
        """Read a text string."""
        start = self.position
        content = self._content(self.head(TEXT))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise CborError(f"the text {content[:40]!r} is not UTF-8", "3.5.1 step 1", start) from None

    def array(self, length: int | None = None) -> int:
        """Read the head of an array, of `length` items if given, and return its length."""
        start = self.position
        found = self.head(ARRAY)
        if length is not None and found != length:
            raise CborError(f"an array has {found} items, expected {length}", "3.5.1 step 5", start)
        return found

    def entries(self, take_key: Callable[[], _Key]) -> Iterator[_Key]:
        """Read a map: yield each key, read by `take_key`, in its order; the caller reads its value before the next."""
        previous = b""
        for _ in range(self.head(MAP)):
            start = self.position
            key = take_key()
            encoded = self.source[start : self.position]
            if encoded <= previous:
                fault = "appears twice" if encoded == previous else "is not in order"
                raise CborError(f"the map key {_shorten(key)} {fault}", "3.5.1 step 2", start)
            previous = encoded
            self.key_start = start
            yield key

    def record(
        self, members: Mapping[str, Callable[[], Any]], *, optional: Collection[str] = (), closed: bool = False
    ) -> dict[str, Any]:
        """Read a map from text: `members` has the reader of each known value, others may be any item.

        Refuses a map that lacks a member, unless it is optional; with `closed` also a key that is not known.
        """
        start = self.position
        found: dict[str, Any] = {}
        for key in self.entries(self.text):
            if closed and key not in members:
                raise CborError(f"unknown map key {_shorten(key)}", "3.5.1 step 5", self.key_start)
            found[key] = members.get(key, self.any)()
        if missing := [key for key in members if key not in found and key not in optional]:
            raise CborError(f"a map lacks {', '.join(missing)}", "3.5.1 step 5", start)
        return found

    def any(self, depth: int = 0) -> bytes:
        """Read any well-formed, deterministic item that nests at most `MAX_NESTING` deep; return its bytes."""
        start = self.position
        if depth > MAX_NESTING:
            raise CborError(f"items nest more than {MAX_NESTING} deep", "3.5.1 step 1", start)
        if self.peek() == _SIMPLE:
            self._simple(self.source[start] & 0x1F)
            return self.source[start : self.position]
        major, argument = self._any_head()
        if major == BYTES:
            self._content(argument)
        elif major == TEXT:
            self.position = start
            self.text()
        elif major == ARRAY:
            for _ in range(argument):
                self.any(depth + 1)
        elif major == MAP:
            self.position = start
            for _ in self.entries(lambda: self.any(depth + 1)):
                self.any(depth + 1)
        elif major == TAG:
            self.any(depth + 1)
        return self.source[start : self.position]

    def end(self) -> None:
        """Refuse further bytes."""
        extra = len(self.source) - self.position
        if extra:
            raise CborError(f"{extra} more bytes follow the item", "3.5.1 step 3", self.position)

    def peek(self) -> int:
        """Return the next item's major type; -1 at the end."""
        return self.source[self.position] >> 5 if self.position < len(self.source) else -1

    def _any_head(self) -> tuple[int, int]:
        try:
            major, argument, self.position = read_head(self.source, self.position)
        except CborError as error:
            step = "3.5.1 step 2" if isinstance(error, NotDeterministic) else "3.5.1 step 1"
            raise CborError(error.reason, step, error.offset) from None
        return major, argument

    def _content(self, length: int) -> bytes:
        start = self.position
        left = len(self.source) - start
        if length > left:
            raise CborError(f"a string of {length} bytes has only {left} left", "3.5.1 step 1", start)
        self.position = start + length
        return self.source[start : self.position]

    def _simple(self, low: int) -> None:
        """Skip a simple value or a float, which must be the shortest for its value."""
        start = self.position
        if low < 24:
            self.position += 1
            return
        width = _WIDTHS.get(low, 0)
        content = self.source[start + 1 : start + 1 + width]
        if not width or len(content) < width or (low == 24 and content[0] < 32):
            raise CborError(f"0x{self.source[start]:02x} is not a simple value", "3.5.1 step 1", start)
        if low > 24:
            _check_float(content, low, start)
        self.position = start + 1 + width


def _check_float(content: bytes, low: int, start: int) -> None:
    (value,) = struct.unpack(_FLOATS[low], content)
    for shorter in range(25, low):
        try:
            packed = struct.pack(_FLOATS[shorter], value)
        except OverflowError:
            continue
        (again,) = struct.unpack(_FLOATS[shorter], packed)
        if again == value or math.isnan(value):
            raise CborError(f"the float {value} is not in its shortest form", "3.5.1 step 2", start)


def _shorten(key: object) -> str:
    shown = repr(key)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
