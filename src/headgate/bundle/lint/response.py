"""A response again, once its parser has refused it: every step on its own, as far as the bytes tell (3.4, 3.6)."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from headgate.bundle.format.cbor import ARRAY, BYTES, MAP, CborError, Items, data
from headgate.bundle.format.constants import MAX_HEADERS_SIZE
from headgate.bundle.format.header_decoder import FieldError, decode_headers, is_field_value
from headgate.bundle.lint.file import File
from headgate.bundle.lint.finding import Notes
from headgate.bundle.lint.passage import Passage
from headgate.bundle.lint.relaxed import read_any_head
from headgate.bundle.model import Location, Section

__all__ = ["LooseHead", "unlisted", "walk_response"]

_LONGEST_HEAD: Final = 9
_STATUS: Final = b":status"
_TYPE: Final = b"content-type"


class LooseHead(NamedTuple):
    """What could be made of a response up to its payload."""

    headers: dict[str, str]
    lacks_type: bool
    """That there is no content-type is certain."""
    payload: Location | None
    """None where it cannot be told where that is."""
    at: int
    """Where the headers end."""


def walk_response(file: File, location: Location, notes: Notes, subject: str) -> LooseHead | None:
    """Note what is wrong with a response up to its payload, but for step 9; None where no headers were found."""
    return _Walk(file, location, notes, subject).run()


def unlisted(file: File, responses: Section, listed: set[int]) -> Iterator[Location]:
    """Yield where responses are that do not begin at any of these bytes, as far as one follows the other."""
    position, end = responses.offset, responses.offset + responses.length
    try:
        position += read_any_head(file.read(position, _LONGEST_HEAD)).contents
        while position < end:
            begin = position
            position += read_any_head(file.read(position, _LONGEST_HEAD)).contents
            for _ in ("headers", "payload"):
                found = read_any_head(file.read(position, _LONGEST_HEAD))
                if found.major != BYTES or found.argument is None:
                    return
                position += found.contents + found.argument
            if begin not in listed and position <= end:
                yield Location(begin, position - begin)
    except CborError:
        return


class _Walk:
    def __init__(self, file: File, location: Location, notes: Notes, subject: str) -> None:
        self._file = file
        self._location = location
        self._notes = notes
        self._subject = subject
        self._headers: dict[str, str] = {}
        self._pseudos: dict[bytes, bytes] = {}
        self._names: set[bytes] = set()

    def run(self) -> LooseHead | None:
        """Walk the response, in the order of its bytes."""
        begin = self._array()
        found = None if begin is None else self._string_head(begin, "3.4 step 3")
        if begin is None or found is None:
            return None
        headers_begin, size = found
        headers_end = headers_begin + size
        has_all = False
        if size >= MAX_HEADERS_SIZE:
            fault = f"{size} bytes of headers, of which fewer than {MAX_HEADERS_SIZE} are taken"
            self._fault(fault, "3.4 step 4", begin)
        else:
            source = self._file.read(headers_begin, size)
            if len(source) < size:
                self._fault(f"the headers of {size} bytes are cut", "3.4 step 5", headers_begin)
                return None
            has_all = self._header_map(Passage(source, "3.4 step 5", headers_begin, self._notes, subject=self._subject))
            self._pseudo_headers(headers_begin, has_all=has_all)
        payload = self._payload(headers_end)
        return LooseHead(self._headers, has_all and _TYPE not in self._names, payload, headers_end)

    def _array(self) -> int | None:
        """Steps 1 and 2: give where the head of the headers is."""
        start = self._location.offset
        source = self._file.read(start, _LONGEST_HEAD)
        if not source:
            self._fault("the bundle ends before the response", "3.4 step 1", start)
            return None
        if source[0] == 0x82:
            return start + 1
        self._fault(f"the response begins with 0x{source[0]:02x}, not 0x82", "3.4 step 2", start)
        try:
            found = read_any_head(source)
        except CborError:
            return None
        return start + found.contents if found.major == ARRAY else None

    def _string_head(self, position: int, step: str) -> tuple[int, int] | None:
        """Give where a byte string's contents begin, and how long they are (3.5.2)."""
        try:
            found = read_any_head(self._file.read(position, _LONGEST_HEAD))
        except CborError as error:
            self._fault(error.reason, f"{step}, {error.step}", position)
            return None
        if found.fault is not None:
            self._fault(found.fault.reason, f"{step}, {found.fault.step}", position)
        if found.major != BYTES:
            self._fault("there is no byte string", f"{step}, 3.5.2 step 2", position)
            return None
        return None if found.argument is None else (position + found.contents, found.argument)

    def _header_map(self, passage: Passage) -> bool:
        """Steps 5 and 6: take every pair, and say if these were all."""
        entered = passage.enter(MAP)
        if entered is None:
            return False
        count = 0
        for start, middle, _ in passage.entries(*entered):
            count += 1
            name, value = _string(passage, start), _string(passage, middle)
            if name is not None:
                self._take(passage, start, name, value)
        return count == entered[1]

    def _take(self, passage: Passage, start: int, name: bytes, value: bytes | None) -> None:
        """Take one pair; what is refused is kept too, so that nobody calls it missing."""
        known = name.lower()
        self._names.add(known)
        try:
            decode_headers(b"\xa1" + data(name) + data(b""))
        except FieldError as error:
            passage.fault(error.reason, f"3.4 step 6, {error.step}", start)
        if value is None:
            return
        if known.startswith(b":"):
            self._pseudos[known] = value
            return
        if not is_field_value(value):
            fault = f"{value[:80]!r} is no value for {name[:80].decode('latin-1')}"
            passage.fault(fault, "3.4 step 6, 3.6 step 4.3", start)
        self._headers[known.decode("latin-1")] = value.decode("latin-1")

    def _pseudo_headers(self, at: int, *, has_all: bool) -> None:
        """Steps 7 and 8."""
        others = [name for name in self._names if name.startswith(b":") and name != _STATUS]
        if others or (has_all and _STATUS not in self._names):
            names = ", ".join(repr(name[:40]) for name in sorted(self._names) if name.startswith(b":")) or "none"
            self._fault(f"the pseudo-headers must be :status alone, and are {names[:200]}", "3.4 step 7", at)
        status = self._pseudos.get(_STATUS)
        if status is not None and (len(status) != 3 or not status.isdigit()):
            self._fault(f"the status {status[:40]!r} is not three digits", "3.4 step 8", at)

    def _payload(self, headers_end: int) -> Location | None:
        """Steps 10 and 11."""
        found = self._string_head(headers_end, "3.4 step 10")
        if found is None:
            return None
        begin, length = found
        taken = begin + length - self._location.offset
        if taken != self._location.length:
            fault = f"the response takes {taken} bytes, its location {self._location.length}"
            self._fault(fault, "3.4 step 11", begin)
        return Location(begin, length)

    def _fault(self, reason: str, step: str, offset: int) -> None:
        self._notes.fault(reason, step, offset, subject=self._subject)


def _string(passage: Passage, position: int) -> bytes | None:
    """Give a name or a value; None for what is no byte string, noted."""
    try:
        return Items(passage.source, position).data()
    except CborError as error:
        passage.refused(error)
        return None
