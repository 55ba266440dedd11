"""Check a bundle: what readers refuse, and what is allowed but unwise.

Each part (preamble, section lengths, each section, each response) is read by the readers' own strict parser and gives
one error at most, so an error in one part does not hide those in others. A finding has a code to search for, a message,
the step of the document, and the place, in bytes from the first byte of the file.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

from headgate.bundle.files.byte_source import Source, open_source
from headgate.bundle.format.cbor import LONGEST_HEAD, CborError, Items
from headgate.bundle.format.incremental import ByteSource, Parser, drive
from headgate.bundle.format.integrity_block import integrity_block_parser
from headgate.bundle.format.metadata import (
    TRAILER_SIZE,
    MetadataBuilder,
    Preamble,
    known_sections,
    preamble_parser,
    section_table_parser,
    trailer_parser,
)
from headgate.bundle.format.response import response_parser
from headgate.bundle.model import Location, Metadata, Profile, Section
from headgate.errors import BundleError
from headgate.http.url import without_fragment

_Result = TypeVar("_Result")

MAX_PER_CODE: Final = 10_000
"""Findings of one code that are listed; the others are counted, since untrusted input controls how many there are."""
_MAX_READS_PER_BYTE: Final = 8
"""How often each byte may be read on average: more than a bundle needs whose responses do not overlap."""
_MIN_READ_LIMIT: Final = 1 << 20
_CODES: Final = {
    "3.3 step 2": "not-a-bundle",
    "3.3 step 13": "section-count",
    "3.3 step 19.2": "duplicate-section",
    "3.3 step 20": "responses-not-last",
    "3.3 step 24": "section-missing",
    "3.3.1 step 3.1": "location-out-of-range",
    "3.3.1 step 4.2": "index-url",
    "3.3.1 step 4.3.2": "duplicate-url",
    "3.3.4 step 2": "critical-unknown",
    "3.4 step 7": "status",
    "3.4 step 8": "status",
    "3.4 step 9": "content-type-missing",
    "3.4 step 11": "location-mismatch",
    "3.4 step 12": "response-cut",
    "3.5.1 step 2": "not-deterministic",
    "3.5.1 step 3": "trailing-bytes",
    "3.5.3 step 3": "not-deterministic",
    "3.6 step 4.1": "header-field",
    "3.6 step 4.3": "header-field",
    "integrity block": "integrity-block",
}
"""From the broken step, the innermost first, to the code; the code of another step is the kind of its error."""


class BundleFinding(Struct, frozen=True):
    """One thing found."""

    code: str
    message: str
    step: str | None
    """The step or section of the document; None where the document says nothing about it."""
    offset: int | None
    """Bytes from the first byte of the file; None for what is not in one place."""


class BundleReport(Struct, frozen=True):
    """Everything found."""

    errors: list[BundleFinding]
    """What readers refuse, and what breaks a MUST of the document."""
    warnings: list[BundleFinding]
    """What readers accept, but may not do as intended."""


def check_bundle(
    source: Source,
    *,
    profile: Profile = "strict",
    from_end: bool = False,
    base_url: str | None = None,
    max_section: int | None = None,
) -> BundleReport:
    """Check the bundle in `source`, which is found and read as `open_bundle` does.

    Responses are checked if the index can be read. What profile compat accepts is a warning with that profile. Raises
    `OSError` for a path that cannot be read, and `ConfigurationError` for an invalid `base_url`.
    """
    with closing(open_source(source)) as opened:
        return _Check(opened, profile, base_url, max_section).run(from_end=from_end)


class _Check:
    """The check of one bundle; offsets count from the bundle's first byte until they are reported."""

    def __init__(self, source: ByteSource, profile: Profile, base_url: str | None, max_section: int | None) -> None:
        self._max_section = max_section
        self._source = source
        self._profile: Profile = profile
        self._base_url = base_url
        self._start = 0
        """Where the bundle begins."""
        self._report = BundleReport([], [])
        self._error, self._warn = partial(self._add, self._report.errors), partial(self._add, self._report.warnings)
        self._counts: Counter[str] = Counter()
        self._left_to_read = _MAX_READS_PER_BYTE * source.size + _MIN_READ_LIMIT

    def run(self, *, from_end: bool) -> BundleReport:
        """Check every part, and return what was found."""
        start = self._parse(trailer_parser(self._source.size) if from_end else _block_length_parser())
        if start is not None:
            self._start = start
            self._check_bundle()
        for code, count in self._counts.items():
            if count > MAX_PER_CODE:
                more = f"{count - MAX_PER_CODE} more findings of this kind are not listed"
                self._report.warnings.append(BundleFinding(code, more, None, None))
        return self._report

    def _check_bundle(self) -> None:
        preamble = self._parse(preamble_parser(self._max_section))
        if preamble is None or (sections := self._parse(section_table_parser(preamble))) is None:
            return
        if preamble.array_head == 0x84 or preamble.version == "draft-01":
            fault = "the document's own form, array head 0x84 or version 1; published readers expect 0x86 and b1, or b2"
            self._warn("literal-form", fault, "3.3 step 2", 0)
        metadata = self._check_sections(preamble, sections)
        if metadata is not None:
            self._check_primary_url(metadata)
            self._check_responses(metadata)
        self._check_length(sections[-1])

    def _check_sections(self, preamble: Preamble, sections: tuple[Section, ...]) -> Metadata | None:
        """Check the sections; return the metadata where the index is right."""
        builder = MetadataBuilder(preamble, sections, self._base_url, self._max_section)
        offsets = {section.name: section.offset for section in sections}
        # The primary section first: relative URLs in others are relative to it.
        for section in sorted(sections[:-1], key=lambda section: section.name != "primary"):
            if section.name not in known_sections(preamble.version):
                fault = f"the section {section.name[:80]!r} is unknown in {preamble.version}; readers skip it"
                self._warn("unknown-section", fault, "3.3 step 22.1", section.offset)
            else:
                self._parse(builder.section_parser(section))
        for name in ("index",) if preamble.version == "b2" else ("index", "manifest"):
            if name not in offsets:
                is_accepted = name == "manifest" and self._profile == "compat"
                report, code = (self._warn, "compat") if is_accepted else (self._error, "section-missing")
                report(code, f"the {name} section is missing", "3.3 step 24", preamble.position)
        if not builder.has_index:
            return None
        metadata = builder.metadata("compat")
        if metadata.manifest_url is not None and metadata.manifest_url not in metadata.requests:
            # 3.3.2: "The URL MUST refer to the one or more response(s) contained in the bundle itself."
            fault = f"the manifest {metadata.manifest_url} is not in the bundle"
            self._error("manifest-not-in-bundle", fault, "3.3.2", offsets["manifest"])
        return metadata

    def _check_primary_url(self, metadata: Metadata) -> None:
        url = metadata.primary_url
        if url is None:
            self._warn("primary-url", "there is no primary URL, which clients open first", "2.2", None)
        elif without_fragment(url) not in metadata.requests:
            self._warn("primary-url", f"the primary URL {url} is not in the bundle", "2.2", None)
        elif "#" in url:
            self._warn("primary-url", f"the primary URL {url} has a fragment", "2.2", None)

    def _check_responses(self, metadata: Metadata) -> None:
        """Check each response once, and that they lie one after another in their section."""
        section, located = metadata.sections[-1], list(metadata.in_file_order())
        for number, (location, keys) in enumerate(located):
            if self._left_to_read < 0:
                left = len(located) - number
                fault = f"responses overlap; {left} of them were not checked, to limit the time that it takes"
                self._error("unchecked", fault, None, section.offset)
                break
            self._check_response(location, f"{' '.join(filter(None, keys[0]))}: ")
        self._check_layout(section, [location for location, _ in located])

    def _check_response(self, location: Location, subject: str) -> None:
        head = self._parse(response_parser(location, profile=self._profile), subject)
        if head is None:
            return
        begin, length = head.payload.offset, head.payload.length
        if length and not self._read(begin + length - 1, 1):
            fault = f"{subject}the payload of {length} bytes is cut"
            self._error("response-cut", fault, "3.4 step 12", begin)
        if "content-type" not in head.stored_headers:  # which compat accepts where the payload is empty
            self._warn("compat", f"{subject}content-type is missing", "3.4 step 9", begin)

    def _check_layout(self, section: Section, used: Sequence[Location]) -> None:
        """Check that the responses section is an array of the responses that the index has, and of nothing else."""
        items = Items(self._read(section.offset, LONGEST_HEAD))
        try:
            items.array(len(used))
        except CborError as error:
            self._warn("responses-layout", f"the responses section: {error.reason}", "3.1", section.offset)
        position = section.offset + items.position
        for location in [*used, Location(section.offset + section.length, 0)]:
            if location.offset != position:
                gap = location.offset - position
                fault = f"{gap} bytes belong to no response" if gap > 0 else "a response begins inside another"
                self._warn("responses-layout", fault, "3.3.5", min(position, location.offset))
            position = max(position, location.offset + location.length)

    def _check_length(self, last: Section) -> None:
        """Check the length that follows the last section, and what follows it."""
        end = last.offset + last.length
        length, found = end + TRAILER_SIZE, self._read(end, TRAILER_SIZE)
        if found[:1] != b"\x48" or int.from_bytes(found[1:], "big") != length:
            fault = f"the length at the end is not {length}, so the bundle cannot be read from its end"
            self._warn("length", fault, "3.3.6", end)
        elif self._source.size - self._start > length:
            fault = f"{self._source.size - self._start - length} bytes follow the bundle"
            self._warn("length", fault, "3.1", length)

    def _parse(self, parser: Parser[_Result], subject: str = "") -> _Result | None:
        """Run a parser; add its error and return None where it refuses."""
        try:
            return drive(parser, self._read)
        except BundleError as error:
            steps = reversed(error.step.split(", "))
            code = next((_CODES[step] for step in steps if step in _CODES), error.kind)
            self._error(code, f"{subject}{error.reason}", error.step, error.offset)
            return None

    def _read(self, offset: int, length: int) -> bytes:
        """Return the bytes at an offset in the bundle; fewer where the file ends."""
        found = bytes(self._source.read(self._start + offset, length))
        self._left_to_read -= len(found)
        return found

    def _add(
        self, findings: list[BundleFinding], code: str, message: str, step: str | None, offset: int | None
    ) -> None:
        self._counts[code] += 1
        if self._counts[code] <= MAX_PER_CODE:
            findings.append(BundleFinding(code, message, step, None if offset is None else offset + self._start))


def _block_length_parser() -> Parser[int]:
    block = yield from integrity_block_parser()
    return block.length if block is not None else 0
