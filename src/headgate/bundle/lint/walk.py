"""The walk over a bundle that goes on where a reader stops.

Each part is read by the reader's own parser. One that is refused is walked again, by rules that take what is wrong in
it one by one; it hides neither the parts behind it nor, as far as its bytes tell where things are, anything in itself.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from headgate.bundle.files.byte_source import Source
from headgate.bundle.format.constants import MAGIC
from headgate.bundle.format.incremental import Parser
from headgate.bundle.format.integrity_block import MAX_BLOCK_SIZE, integrity_block_parser
from headgate.bundle.format.preamble import Preamble, preamble_parser, section_table_parser, trailer_parser
from headgate.bundle.format.response import response_parser
from headgate.bundle.lint import advice
from headgate.bundle.lint.contents import Contents
from headgate.bundle.lint.file import File
from headgate.bundle.lint.finding import Finding, Notes, Report
from headgate.bundle.lint.index import ListedIndex
from headgate.bundle.lint.lead import walk_lead
from headgate.bundle.lint.response import LooseHead, unlisted, walk_response
from headgate.bundle.lint.table import Table, table_of, walk_table
from headgate.bundle.model import Location, Profile, Section
from headgate.errors import BundleError

__all__ = ["lint"]

_Result = TypeVar("_Result")

_NO_TYPE: Final = "there is no content-type"


def lint(source: Source, *, profile: Profile = "strict", from_end: bool = False, base_url: str | None = None) -> Report:
    """Find everything that is wrong with the bundle in `source`, and what is allowed and unwise.

    It is found and read as `open_bundle` does. Raises nothing for any bytes, `OSError` for a path that cannot be read.
    With profile compat, what that profile takes is a warning. Of findings with one code the first 10,000 are told, and
    the others counted.
    """
    notes = Notes()
    file = File(source)
    try:
        _Walk(file, notes, profile, base_url).run(from_end=from_end)
    finally:
        file.close()
    return notes.report()


class _Walk:
    """One walk."""

    def __init__(self, file: File, notes: Notes, profile: Profile, base_url: str | None) -> None:
        self._file = file
        self._notes = notes
        self._profile = profile
        self._base_url = base_url

    def run(self, *, from_end: bool) -> None:
        """Walk the whole bundle."""
        start = self._found_from_end() if from_end else self._behind_block()
        if start is None:
            return
        self._file.start = self._notes.start = start
        lead = self._lead()
        if lead is None:
            return
        self._advise(advice.on_lead(lead))
        table = self._parse(_table_parser(lead), lambda: walk_table(self._file, lead.position, self._notes))
        if table is None:
            return
        self._advise(advice.on_sections(lead.version, table.others))
        contents = Contents(self._file, self._notes, lead, table, self._base_url)
        contents.walk()
        for name in ("index",) if lead.version == "b2" else ("index", "manifest"):
            if table.end is not None and not contents.has(name):
                self._missing(name, lead.position)
        has_none = lead.version == "b2" and not contents.has("primary")
        self._advise(advice.on_urls(contents.primary_url, contents.index, has_none=has_none))
        if table.responses is not None:
            self._responses(contents.index, table.responses)
        if table.end is not None:
            self._advise(advice.on_ending(self._file, table.end))

    def _found_from_end(self) -> int | None:
        try:
            return self._file.run(trailer_parser(self._file.size))
        except BundleError as error:
            self._notes.refused(error)
            return None

    def _behind_block(self) -> int | None:
        """Find the bundle at the first byte, or behind an integrity block, which may itself be refused."""
        try:
            block = self._file.run(integrity_block_parser())
        except BundleError as error:
            self._notes.refused(error)
            magic = self._file.read(0, MAX_BLOCK_SIZE).find(MAGIC)
            return magic - 1 if magic > 0 else None
        return block.length if block else 0

    def _lead(self) -> Preamble | None:
        try:
            lead = self._file.run(preamble_parser())
            # In b2 the parser of the section lengths would meet a misplaced primary URL, and not know it.
            return lead if lead.version != "b2" else walk_lead(self._file, self._notes)
        except BundleError as error:
            # A layout that is not the version's is refused in the first step that it makes wrong.
            return self._notes.again(error, lambda: walk_lead(self._file, self._notes), same="3.3 step 7")

    def _missing(self, name: str, offset: int) -> None:
        finding = Finding("section-missing", f"there is no {name} section", "3.3 step 24", offset)
        is_taken = name == "manifest" and self._profile == "compat"
        (self._notes.warning if is_taken else self._notes.error)(finding)

    def _responses(self, index: ListedIndex, section: Section) -> None:
        """Walk the responses, each once."""
        used: list[Location] = []
        left_out = 0
        for listed in sorted(index.responses, key=lambda listed: (listed.location.offset, listed.location.length)):
            if used and used[-1] == listed.location:
                continue
            used.append(listed.location)
            if self._file.is_spent:
                left_out += 1
                continue
            subject = f"{listed.url} {listed.key}: " if listed.key else f"{listed.url}: "
            head = self._response(listed.location, subject)
            if head is not None:
                self._advise(advice.on_variants(head.headers, head.at, subject, listed))
        if left_out:
            fault = f"{left_out} responses were not looked at: so many overlap that it would take too long"
            self._notes.error(Finding("unchecked", fault, None, section.offset))
        if index.is_whole:
            self._advise(advice.on_layout(self._file, section, used))
            return
        for location in unlisted(self._file, section, {location.offset for location in used}):
            self._response(location, f"the response at byte {self._notes.start + location.offset}: ")

    def _response(self, location: Location, subject: str) -> LooseHead | None:
        """Walk one response; give what could be made of its head."""
        parser = _head_parser(location, self._profile)
        head = self._parse(parser, lambda: self._loose_head(location, subject), subject=subject)
        if head is None:
            return None
        self._advise(advice.on_headers(head.headers, head.at, head.payload, subject))
        if head.payload is None:
            return head
        begin, length = head.payload.offset, head.payload.length
        fits = begin + length == location.offset + location.length
        if length and fits and not self._file.read(begin + length - 1, 1):
            self._notes.fault(f"the payload of {length} bytes is cut", "3.4 step 12", begin, subject=subject)
        if not length and head.lacks_type and self._profile == "compat":
            missing = Finding("content-type-missing", f"{subject}{_NO_TYPE}", "3.4 step 9", head.at)
            self._notes.warning(missing)
        first = self._file.read(begin, min(length, advice.SNIFFED))
        self._advise(advice.on_payload(head.headers, begin, first, subject))
        return head

    def _loose_head(self, location: Location, subject: str) -> LooseHead | None:
        """Walk a response that was refused, and ask for its content-type, which compat lets an empty payload lack."""
        head = walk_response(self._file, location, self._notes, subject)
        if head is not None and head.lacks_type:
            has_payload = head.payload is not None and head.payload.length > 0
            if self._profile == "strict" or has_payload:
                self._notes.fault(_NO_TYPE, "3.4 step 9", head.at, subject=subject)
        return head

    def _parse(
        self, parser: Parser[_Result], again: Callable[[], _Result | None], *, subject: str = ""
    ) -> _Result | None:
        """Run a parser; where it refuses, note what the other way finds, and give what that could make of it."""
        try:
            return self._file.run(parser)
        except BundleError as error:
            return self._notes.again(error, again, subject)

    def _advise(self, findings: Iterator[Finding]) -> None:
        for finding in findings:
            self._notes.warning(finding)


def _table_parser(lead: Preamble) -> Parser[Table]:
    sections = yield from section_table_parser(lead)
    return table_of(sections, sections[-1].offset + sections[-1].length)


def _head_parser(location: Location, profile: Profile) -> Parser[LooseHead]:
    head = yield from response_parser(location, profile=profile)
    return LooseHead(head.stored_headers, "content-type" not in head.headers, head.payload, head.payload.offset)
