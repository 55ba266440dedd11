"""Which sections there are and where, again, once the parser of their lengths has refused them (3.3 steps 8 to 20)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.bundle.format.cbor import ARRAY, BYTES, CborError, Items
from headgate.bundle.format.constants import MAX_HEADERS_SIZE, MAX_SECTION_TABLE_SIZE
from headgate.bundle.lint.file import File
from headgate.bundle.lint.finding import Notes
from headgate.bundle.lint.passage import Passage
from headgate.bundle.lint.relaxed import AnyHead, read_any_head
from headgate.bundle.model import Section

__all__ = ["Table", "table_of", "walk_table"]

_LONGEST_HEAD: Final = 9


class Table(NamedTuple):
    """The sections of a bundle."""

    others: list[Section]
    """All but the responses, in the order of the file; a name may come twice."""
    responses: Section | None
    """The last of that name."""
    end: int | None
    """Where the last section ends; None where not all of them are known."""


def table_of(sections: Sequence[Section], end: int | None) -> Table:
    """Sort out sections in the order of the file, with whatever names."""
    responses = next((section for section in reversed(sections) if section.name == "responses"), None)
    return Table([section for section in sections if section.name != "responses"], responses, end)


def walk_table(file: File, start: int, notes: Notes) -> Table | None:
    """Note what is wrong with the section lengths, and give what they mean; None where the sections cannot be found."""
    return _Walk(file, start, notes).run()


class _Walk:
    def __init__(self, file: File, start: int, notes: Notes) -> None:
        self._file = file
        self._start = start
        self._notes = notes

    def run(self) -> Table | None:
        """Walk the lengths, then the head of the sections."""
        found = self._head(self._start, "3.3 step 8")
        if found is None or found.argument is None:
            return None
        if found.major != BYTES:
            self._notes.fault("the section lengths are no byte string", "3.3 step 8, 3.5.2 step 2", self._start)
            return None
        size, begin = found.argument, self._start + found.contents
        if size >= MAX_SECTION_TABLE_SIZE:
            fault = f"{size} bytes of section lengths, of which fewer than {MAX_SECTION_TABLE_SIZE} are taken"
            self._notes.fault(fault, "3.3 step 9", self._start)
        if size >= MAX_HEADERS_SIZE:
            return None
        encoded = self._file.read(begin, size)
        if len(encoded) < size:
            self._notes.fault(f"the section lengths of {size} bytes are cut", "3.3 step 10", begin)
            return None
        passage = Passage(encoded, "3.3 step 11", begin, self._notes)
        lengths, are_all = _lengths(passage)
        position = self._sections(begin + size, len(lengths) if are_all else None)
        return None if position is None else self._table(passage, lengths, position, are_all=are_all)

    def _sections(self, start: int, count: int | None) -> int | None:
        """Steps 12 and 13: give where the first section is; `count` says how many there are, where that is known."""
        found = self._head(start, "3.3 step 12")
        if found is None:
            return None
        if found.major != ARRAY or (count is not None and found.argument not in (count, None)):
            wanted = "" if count is None else f" of {count} sections"
            fault = f"an array{wanted} belongs here, not {found.argument} items of major type {found.major}"
            self._notes.fault(fault, "3.3 step 13", start)
        return start + found.contents

    def _table(self, passage: Passage, lengths: list[tuple[str, int, int]], position: int, *, are_all: bool) -> Table:
        """Steps 14 to 20."""
        sections: list[Section] = []
        names: set[str] = set()
        for name, length, place in lengths:
            if name in names:
                passage.fault(f"the section {name[:80]!r} appears twice", "3.3 step 19.2", place)
            names.add(name)
            sections.append(Section(name, position, length))
            position += length
        if are_all and (not sections or sections[-1].name != "responses"):
            self._notes.fault("the last section is not responses", "3.3 step 20", self._start)
        return table_of(sections, position if are_all else None)

    def _head(self, position: int, step: str) -> AnyHead | None:
        try:
            found = read_any_head(self._file.read(position, _LONGEST_HEAD))
        except CborError as error:
            self._notes.fault(error.reason, f"{step}, {error.step}", position)
            return None
        if found.fault is not None:
            self._notes.fault(found.fault.reason, f"{step}, {found.fault.step}", position)
        return found


def _lengths(passage: Passage) -> tuple[list[tuple[str, int, int]], bool]:
    """Give each name and length, and where they stand, and if these are all.

    What is behind a length that is none is at no known place.
    """
    entered = passage.enter(ARRAY)
    if entered is None:
        return [], False
    position, count = entered
    if count % 2 and passage.is_whole:
        passage.refused(CborError(f"{count} items are no pairs of name and length", "3.5.1 step 5", 0))
    items = Items(passage.source, position)
    lengths: list[tuple[str, int, int]] = []
    for _ in range(count // 2):
        start = items.position
        try:
            lengths.append((items.text(), items.uint(), start))
        except CborError as error:
            passage.refused(error)
            return lengths, False
    return lengths, passage.is_whole and not count % 2
