"""CBOR that is well-formed but not deterministic, made deterministic so that it can be read on (3.5.1 step 2).

The strict parsers take one encoding of each item and stop at any other. Here an item is written again with shortest
heads and known lengths, each change noted as the fault that it is; strict parsers read what comes of it, and what they
say of a position there is told of the bytes it came from. Maps keep their order. Where the bytes are no CBOR at all
the copy ends, before the innermost item that is not.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Final, NamedTuple

from msgspec import Struct

from headgate.bundle.format.cbor import ARRAY, BYTES, MAP, TEXT, CborError, Items, head, head_size, read_head

__all__ = ["MOST_FAULTS", "AnyHead", "Fault", "Relaxed", "read_any_head", "relax", "skip"]

MOST_FAULTS: Final = 200_000
"""Faults of one item after which the rest of it is left alone: each is remembered, and takes as few as two bytes."""

_TAG: Final = 6
_SIMPLE: Final = 7
_NULL: Final = b"\xf6"
_BREAK: Final = b"\xff"
_LOOSE: Final = "3.5.1 step 2"


class AnyHead(NamedTuple):
    """A head that may be longer than it need be, or say no length."""

    major: int
    argument: int | None
    """None: an indefinite length, which a break will end."""
    contents: int
    """Where they begin."""
    fault: CborError | None
    """What the strict parser says of it."""


class Fault(NamedTuple):
    """What is wrong with an item: why, which step of 3.5.1 says so, and at which byte of what was given."""

    reason: str
    step: str
    offset: int


class Relaxed(Struct, frozen=True):
    """An item written again."""

    source: bytes
    faults: list[Fault]
    """What was not deterministic, and if not whole, last, what is no CBOR."""
    is_whole: bool
    begins: list[int]
    """Where each piece of `source` begins, in ascending order."""
    origins: list[int]
    """Where each piece was."""

    def original(self, position: int) -> int:
        """Say where the byte at a position of `source` was."""
        piece = bisect_right(self.begins, position) - 1
        return self.origins[piece] + position - self.begins[piece]


def read_any_head(source: bytes | memoryview, position: int = 0) -> AnyHead:
    """Read a head in any encoding; raises `CborError` for one that is cut or reserved."""
    try:
        return AnyHead(*read_head(source, position), None)
    except CborError as error:
        if position >= len(source):
            raise
        first = source[position]
        size = head_size(first)
        if first & 0x1F == 31 and BYTES <= first >> 5 <= MAP:
            return AnyHead(first >> 5, None, position + 1, error)
        if size == 1 or len(source) - position < size:
            raise
        argument = int.from_bytes(source[position + 1 : position + size])
        return AnyHead(first >> 5, argument, position + size, error)


def relax(source: bytes) -> Relaxed:
    """Write the first item in `source` again; never raises. Bytes behind it are a fault too (3.5.1 step 3)."""
    walk = _Walk(source)
    is_whole = walk.run()
    pieces = [piece for _, piece in walk.pieces]
    begins = [0, *accumulate(map(len, pieces))]
    return Relaxed(b"".join(pieces), walk.faults, is_whole, begins, [*(at for at, _ in walk.pieces), walk.position])


def skip(source: bytes, position: int) -> int:
    """Say where the item ends that begins here in a relaxed source; raises `CborError` where that ended before."""
    left = 1
    while left:
        left -= 1
        first = source[position] if position < len(source) else 0
        if first >> 5 == _SIMPLE:
            position += head_size(first)
            continue
        major, argument, position = read_head(source, position)
        if major in (BYTES, TEXT):
            position += argument
        elif major in (ARRAY, MAP):
            left += argument * (2 if major == MAP else 1)
        elif major == _TAG:
            left += 1
    return position


class _Open:
    """An array, a map or a tag whose items are being read."""

    __slots__ = ("count", "left", "major", "piece")

    def __init__(self, major: int, left: int | None, piece: int) -> None:
        self.major = major
        self.left = left
        self.piece = piece
        self.count = 0

    def head(self) -> bytes:
        """Write the head for the items that were read; a key without a value counts as a pair."""
        return head(self.major, (self.count + 1) // 2 if self.major == MAP else self.count)


class _Walk:
    """One walk over an item, its parts on a list of our own: strangers decide how deep they nest."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.position = 0
        self.pieces: list[tuple[int, bytes]] = []
        self.faults: list[Fault] = []
        self._copied = 0
        self._open: list[_Open] = []

    def run(self) -> bool:
        """Walk, and say if the item was whole."""
        try:
            self._items()
        except CborError as error:
            self.faults.append(Fault(error.reason, error.step, error.offset))
            for unclosed in self._open:
                self._close(unclosed)
            self._copy(self.position)
            return False
        self._copy(self.position)
        extra = len(self.source) - self.position
        if extra:
            self.faults.append(Fault(f"{extra} more bytes follow the item", "3.5.1 step 3", self.position))
        return True

    def _items(self) -> None:
        self._item()
        while self._open:
            innermost = self._open[-1]
            if innermost.left == 0:
                self._open.pop()
            elif innermost.left is None and self.source[self.position : self.position + 1] == _BREAK:
                self._break(innermost)
            else:
                innermost.count += 1
                if innermost.left is not None:
                    innermost.left -= 1
                self._item()

    def _item(self) -> None:
        """Go over a head, and the content of what has no items in it."""
        start = self.position
        if start < len(self.source) and self.source[start] >> 5 == _SIMPLE:
            self._simple()
            return
        try:
            major, argument, contents, fault = read_any_head(self.source, start)
        except CborError as error:
            raise CborError(error.reason, "3.5.1 step 1", error.offset) from None
        is_string = major in (BYTES, TEXT)
        if argument is None:
            self._note(fault)
            if is_string:
                self._chunks(major)
                return
            self._replace(contents, b"")
        else:
            if is_string and argument > len(self.source) - contents:
                left = len(self.source) - contents
                raise CborError(f"a string of {argument} bytes has only {left} left", "3.5.1 step 1", start)
            if fault is not None:
                self._note(fault)
                self._replace(contents, head(major, argument))
            self.position = contents + (argument if is_string else 0)
        if major in (ARRAY, MAP, _TAG):
            items = 1 if major == _TAG else argument
            left_items = items * 2 if items is not None and major == MAP else items
            self._open.append(_Open(major, left_items, len(self.pieces) - 1))

    def _simple(self) -> None:
        """Go over a simple value or a float; where nothing but its length is wrong, null stands in for it."""
        items = Items(self.source, self.position)
        try:
            items.any()
        except CborError as error:
            if error.step != _LOOSE:
                raise
            self._note(error)
            self._replace(self.position + head_size(self.source[self.position]), _NULL)
        else:
            self.position = items.position

    def _chunks(self, major: int) -> None:
        """Go over a string in chunks, and write it in one piece."""
        position = self.position + 1
        whole = bytearray()
        while self.source[position : position + 1] != _BREAK:
            try:
                kind, size, contents, _ = read_any_head(self.source, position)
            except CborError as error:
                raise CborError(error.reason, "3.5.1 step 1", error.offset) from None
            if kind != major or size is None or size > len(self.source) - contents:
                raise CborError("a string in chunks has something else in it", "3.5.1 step 1", position)
            position = contents + size
            whole += self.source[contents:position]
        self._replace(position + 1, head(major, len(whole)) + whole)

    def _break(self, innermost: _Open) -> None:
        """End an array or a map of indefinite length."""
        if innermost.major == MAP and innermost.count % 2:
            raise CborError("a map ends behind a key", "3.5.1 step 1", self.position)
        self._close(innermost)
        self._replace(self.position + 1, b"")
        self._open.pop()

    def _close(self, unclosed: _Open) -> None:
        if unclosed.left is None:
            self.pieces[unclosed.piece] = self.pieces[unclosed.piece][0], unclosed.head()

    def _note(self, fault: CborError | None) -> None:
        """Note that something is not deterministic."""
        if fault is not None:
            self.faults.append(Fault(fault.reason, _LOOSE, fault.offset))
        if len(self.faults) >= MOST_FAULTS:
            raise CborError(f"{MOST_FAULTS} times not deterministic; the rest is left alone", _LOOSE, self.position)

    def _replace(self, end: int, piece: bytes | bytearray) -> None:
        """Copy up to here, then write `piece` for what ends at `end`."""
        self._copy(self.position)
        self.pieces.append((self.position, bytes(piece)))
        self._copied = self.position = end

    def _copy(self, end: int) -> None:
        if end > self._copied:
            self.pieces.append((self._copied, self.source[self._copied : end]))
            self._copied = end
