"""The walk over a bundle that goes on where a reader stops.

The steps are the parser's own. A section that is refused does not hide the others, nor an entry of the index the next,
nor a response the rest; only what comes before the sections, and the table of them, must be right to go on at all.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from headgate.bundle.cbor import MAP, CborError, Items
from headgate.bundle.holder import Holder, Source, hold
from headgate.bundle.index import Index, IndexRules, read_entry
from headgate.bundle.integrity import integrity_parser
from headgate.bundle.lint import advice
from headgate.bundle.lint.finding import Finding, Report, refusal
from headgate.bundle.metadata import Location, Negotiated, Profile, Section
from headgate.bundle.need import Parser
from headgate.bundle.parser import lead_parser, response_parser, section_table_parser
from headgate.bundle.reading import Lead, known_sections
from headgate.bundle.section import SectionError
from headgate.bundle.sections import read_critical, read_manifest, read_primary, read_signatures
from headgate.errors import BundleError, FormatError

__all__ = ["lint"]

_Result = TypeVar("_Result")


def lint(source: Source, *, profile: Profile = "strict") -> Report:
    """Find everything that is wrong with the bundle in `source`, and what is allowed and unwise.

    Raises nothing for any bytes, `OSError` for a path that cannot be read. With profile compat, what that profile takes
    is a warning.
    """
    holder = hold(source)
    try:
        walk = _Walk(holder, profile)
        walk.run()
    finally:
        holder.close()
    return Report(walk.errors, walk.warnings)


class _Walk:
    """One walk, and what it has found so far."""

    def __init__(self, holder: Holder, profile: Profile) -> None:
        self.errors: list[Finding] = []
        self.warnings: list[Finding] = []
        self._holder = holder
        self._profile = profile
        self._start = 0
        self._here = 0
        self._index_is_whole = False

    def run(self) -> None:
        """Walk the whole bundle."""
        block = self._parse(integrity_parser())
        if self.errors:
            return
        self._start = block.length if block else 0
        lead = self._parse(lead_parser())
        if lead is None:
            return
        self._advise(advice.on_lead(lead))
        sections = self._parse(section_table_parser(lead))
        if sections is None:
            return
        self._advise(advice.on_sections(lead.version, sections))
        index = self._sections(lead, sections)
        used = self._responses(index, lead.primary_url)
        if self._index_is_whole:
            self._advise(advice.on_layout(self._read, self._holder.size - self._start, sections[-1], used))

    def _sections(self, lead: Lead, sections: tuple[Section, ...]) -> Index:
        """Walk the sections before the responses; give what the index has."""
        held = {section.name: section for section in sections[:-1] if section.name in known_sections(lead.version)}
        base_url = primary_url = lead.primary_url
        has_variants = lead.version != "b2"
        if has_variants:
            base_url = None
        else:
            base_url = primary_url = self._section(held, "primary", "primary section", read_primary, None)
        rules = IndexRules(sections[-1], has_variants, base_url)
        index: Index = {}
        if "index" in held:
            self._section(held, "index", "3.3.1 step 1", self._index, rules, index)
        else:
            self._missing("index", lead.position)
        manifest_url = self._section(held, "manifest", "3.3.2 step 1", read_manifest, base_url)
        if "manifest" not in held and has_variants:
            self._missing("manifest", lead.position)
        self._section(held, "critical", "3.3.4 step 1", read_critical, known_sections(lead.version))
        self._section(held, "signatures", "3.3.3 step 1", read_signatures)
        if self._index_is_whole:
            self._contained(manifest_url, held.get("manifest"), index)
            self._advise(advice.on_urls(primary_url, index))
        return index

    def _index(self, source: bytes, rules: IndexRules, index: Index) -> None:
        """Read the index entry by entry; one that is refused does not end it while the next can be found."""
        items = Items(source)
        offset = self._here
        key = b""
        for _ in range(items.head(MAP)):
            start = items.position
            try:
                items.text()
                if source[start : items.position] <= key:
                    fault = "an index key is not in order, or appears twice"
                    self._found(FormatError(fault, step="3.3.1 step 1, 3.5.1 step 2", offset=offset + start))
                key = source[start : items.position]
                items.position = start
                read_entry(items, rules, index)
            except SectionError as error:
                self._found(FormatError(error.reason, step=error.step, offset=offset + error.offset))
            except CborError as error:
                mixed = advice.on_entry_shape(source, start, has_variants=rules.has_variants)
                raise CborError(f"{error.reason}{mixed}", error.step, error.offset) from None
        items.end()
        self._index_is_whole = True

    def _contained(self, manifest_url: str | None, section: Section | None, index: Index) -> None:
        if manifest_url is not None and section is not None and manifest_url not in index:
            fault = f"the manifest {manifest_url} is not in the bundle"
            # 3.3.2: "The URL MUST refer to the one or more response(s) contained in the bundle itself."
            self.errors.append(Finding("manifest-not-in-bundle", fault, "3.3.2", self._start + section.offset))

    def _missing(self, name: str, offset: int) -> None:
        error = FormatError(f"there is no {name} section", step="3.3 step 24", offset=self._start + offset)
        taken = name == "manifest" and self._profile == "compat"
        (self.warnings if taken else self.errors).append(refusal(error))

    def _responses(self, index: Index, fallback_url: str | None) -> list[Location]:
        """Walk the responses, each once; give where they are."""
        seen: list[Location] = []
        for location, url, key, variants in _in_file_order(index):
            if seen and seen[-1] == location:
                continue
            seen.append(location)
            subject = f"{url} {key}: " if key else f"{url}: "
            try:
                head = self._drive(response_parser(location, profile=self._profile, fallback_url=fallback_url))
            except BundleError as error:
                self.errors.append(refusal(error, subject))
                continue
            self._advise(advice.on_response(head, subject, key, variants))
            payload = self._read(head.payload.offset, min(head.payload.length, advice.SNIFFED))
            last = head.payload.length and len(self._read(head.payload.offset + head.payload.length - 1, 1))
            if head.payload.length and not last:
                cut = f"the payload of {head.payload.length} bytes is cut"
                offset = self._start + head.payload.offset
                self.errors.append(refusal(FormatError(cut, step="3.4 step 12", offset=offset), subject))
            self._advise(advice.on_payload(head, bytes(payload), subject))
        return seen

    def _section(
        self, held: dict[str, Section], name: str, step: str, reader: Callable[..., _Result], *more: object
    ) -> _Result | None:
        section = held.get(name)
        if section is None:
            return None
        self._here = self._start + section.offset
        source = self._read(section.offset, section.length)
        try:
            if len(source) < section.length:
                raise SectionError(f"the section {name} of {section.length} bytes is cut", "3.3 step 22.5", 0)
            return reader(bytes(source), *more)
        except CborError as error:
            refused = FormatError(error.reason, step=f"{step}, {error.step}", offset=self._here + error.offset)
        except SectionError as error:
            refused = FormatError(error.reason, step=error.step, offset=self._here + error.offset)
        self._found(refused)
        return None

    def _found(self, error: BundleError) -> None:
        self.errors.append(refusal(error))

    def _advise(self, findings: Iterator[Finding]) -> None:
        for finding in findings:
            offset = None if finding.offset is None else finding.offset + self._start
            self.warnings.append(Finding(finding.code, finding.message, finding.step, offset))

    def _read(self, offset: int, length: int) -> bytes | memoryview:
        return self._holder.read(self._start + offset, length)

    def _parse(self, parser: Parser[_Result]) -> _Result | None:
        try:
            return self._drive(parser)
        except BundleError as error:
            self._found(error)
            return None

    def _drive(self, parser: Parser[_Result]) -> _Result:
        try:
            offset, length = next(parser)
            while True:
                offset, length = parser.send(self._read(offset, length))
        except StopIteration as done:
            result: _Result = done.value
            return result
        except BundleError as error:
            error.offset += self._start
            raise


def _in_file_order(index: Index) -> Iterator[tuple[Location, str, str | None, str | None]]:
    listed: list[tuple[Location, str, str | None, str | None]] = []
    for url, found in index.items():
        if isinstance(found, Negotiated):
            listed += [(location, url, key, found.variants) for key, location in found.locations.items()]
        else:
            listed.append((found, url, None, None))
    listed.sort(key=lambda entry: (entry[0].offset, entry[0].length))
    yield from listed
