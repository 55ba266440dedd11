"""Check a bundle: what readers refuse, and what is allowed but unwise.

Each part (preamble, section lengths, each section, each response) is read by the readers' own strict parser and gives
one error at most, so an error in one part does not hide those in others.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from headgate.bundle import lint_findings
from headgate.bundle.files.byte_source import Source, open_source, release_pages
from headgate.bundle.format.incremental import ByteSource, Parser, drive
from headgate.bundle.format.integrity_block import integrity_block_parser
from headgate.bundle.format.metadata import (
    TRAILER_SIZE,
    MetadataBuilder,
    Preamble,
    known_sections,
    preamble_parser,
    section_parser,
    section_table_parser,
    trailer_parser,
)
from headgate.bundle.format.response import response_parser
from headgate.bundle.lint_findings import BundleFinding, BundleReport, Findings
from headgate.bundle.model import Location, Metadata, Profile, ResponseHead, Section, VariantSet
from headgate.errors import BundleError
from headgate.http.url import parse_url

__all__ = [
    "BundleFinding",
    "BundleReport",
    "lint",
]

_Result = TypeVar("_Result")
_MAX_READS_PER_BYTE: Final = 8
"""How often each byte may be read on average: more than a bundle needs whose responses do not overlap."""
_MIN_READ_LIMIT: Final = 1 << 20
_READS_IN_MEMORY: Final = 512
"""Reads of a mapped file after which its pages are released."""
_NO_TYPE: Final = "content-type is missing"


def lint(
    source: Source, *, profile: Profile = "strict", from_end: bool = False, base_url: str | None = None
) -> BundleReport:
    """Check the bundle in `source`, which is found and read as `open_bundle` does.

    Each part gives one error at most; responses are checked if the index can be read. What profile compat accepts is a
    warning with that profile. Of findings with one code the first 10,000 are listed. Raises `OSError` for a path that
    cannot be read, and `ConfigurationError` for an invalid `base_url`.
    """
    findings = Findings()
    opened = open_source(source)
    try:
        _Linter(opened, findings, profile, base_url).run(from_end=from_end)
    finally:
        opened.close()
    return findings.report()


class _Listed(NamedTuple):
    """A response in the index."""

    location: Location
    url: str
    key: str | None
    variants: str

    @property
    def subject(self) -> str:
        return f"{self.url} {self.key}: " if self.key else f"{self.url}: "


class _Linter:
    def __init__(self, source: ByteSource, findings: Findings, profile: Profile, base_url: str | None) -> None:
        self._source = source
        self._findings = findings
        self._profile: Profile = profile
        self._base_url = base_url
        self._reads = 0
        self._left_to_read = _MAX_READS_PER_BYTE * source.size + _MIN_READ_LIMIT
        self._start = 0
        """Where the bundle begins."""

    def run(self, *, from_end: bool) -> None:
        if from_end:
            start = self._parse(trailer_parser(self._source.size))
        else:
            block = self._parse(_block_length_parser())
            start = block
        if start is None:
            return
        self._start = self._findings.start = start
        preamble = self._parse(preamble_parser())
        if preamble is None:
            return
        self._warn(lint_findings.on_preamble(preamble))
        sections = self._parse(section_table_parser(preamble))
        if sections is None:
            return
        self._warn(lint_findings.on_sections(preamble.version, sections[:-1]))
        metadata = self._metadata(preamble, sections)
        if metadata is not None:
            self._responses(metadata)
        end = sections[-1].offset + sections[-1].length
        self._warn(lint_findings.on_trailer(self._read(end, TRAILER_SIZE), end, self._source.size - start))

    def _metadata(self, preamble: Preamble, sections: tuple[Section, ...]) -> Metadata | None:
        """Check the sections; return the metadata where the index is right."""
        builder = MetadataBuilder(preamble, sections, "compat", self._base_url)
        refused = set()
        known = known_sections(preamble.version)
        # The primary section first: relative URLs in others are relative to it.
        for section in sorted(sections[:-1], key=lambda section: section.name != "primary"):
            if section.name not in known:
                continue
            try:
                builder.read(section, self._drive(section_parser(section, preamble.primary_url)))
            except BundleError as error:
                self._findings.refuse(error)
                refused.add(section.name)
        names = {section.name for section in sections}
        if preamble.version != "b2" and "manifest" not in names:
            self._missing("manifest", preamble.position, is_error=self._profile == "strict")
        if "index" not in names:
            self._missing("index", preamble.position, is_error=True)
        if "index" not in names or "index" in refused:
            return None
        metadata = builder.metadata()
        self._check_urls(metadata, names - refused)
        return metadata

    def _missing(self, name: str, offset: int, *, is_error: bool) -> None:
        finding = BundleFinding("section-missing", f"there is no {name} section", "3.3 step 24", offset)
        (self._findings.error if is_error else self._findings.warning)(finding)

    def _check_urls(self, metadata: Metadata, names: set[str]) -> None:
        offsets = {section.name: section.offset for section in metadata.sections}
        manifest_url = metadata.manifest_url
        if manifest_url is not None and manifest_url not in metadata.requests:
            # 3.3.2: "The URL MUST refer to the one or more response(s) contained in the bundle itself."
            fault = f"the manifest {manifest_url} is not in the bundle"
            self._findings.error(BundleFinding("manifest-not-in-bundle", fault, "3.3.2", offsets["manifest"]))
        if metadata.version != "b2" or "primary" in names or "primary" not in offsets:
            self._warn(lint_findings.on_urls(metadata.primary_url, metadata.requests))
        for name, url in (("primary", metadata.primary_url), ("manifest", manifest_url)):
            if url is not None and parse_url(url) is None:
                self._findings.warning(lint_findings.relative_url(url, offsets[name]))

    def _responses(self, metadata: Metadata) -> None:
        """Check each response once."""
        used: list[Location] = []
        unchecked = 0
        for listed in sorted(_listed(metadata), key=lambda listed: (listed.location.offset, listed.location.length)):
            if used and used[-1] == listed.location:
                continue
            used.append(listed.location)
            if self._left_to_read < 0:
                unchecked += 1
                continue
            head = self._response(listed)
            if head is not None:
                at = head.payload.offset
                self._warn(
                    lint_findings.on_variants(head.stored_headers, at, listed.subject, listed.variants, listed.key)
                )
        section = metadata.sections[-1]
        if unchecked:
            fault = f"responses overlap; {unchecked} of them were not checked, to limit the time that it takes"
            self._findings.error(BundleFinding("unchecked", fault, None, section.offset))
        self._warn(lint_findings.on_layout(self._read(section.offset, TRAILER_SIZE), section, used))

    def _response(self, listed: _Listed) -> ResponseHead | None:
        location, subject = listed.location, listed.subject
        head = self._parse(response_parser(location, profile=self._profile), subject=subject)
        if head is None:
            return None
        begin, length = head.payload.offset, head.payload.length
        if length and not self._read(begin + length - 1, 1):
            fault = f"{subject}the payload of {length} bytes is cut"
            self._findings.error(BundleFinding("response-cut", fault, "3.4 step 12", begin))
        if "content-type" not in head.stored_headers:  # which compat accepts where the payload is empty
            self._findings.warning(BundleFinding("content-type-missing", f"{subject}{_NO_TYPE}", "3.4 step 9", begin))
        self._warn(lint_findings.on_headers(head.stored_headers, begin, length, subject))
        first = self._read(begin, min(length, lint_findings.SNIFFED_SIZE))
        self._warn(lint_findings.on_payload(head.stored_headers, begin, first, subject))
        return head

    def _parse(self, parser: Parser[_Result], *, subject: str = "") -> _Result | None:
        """Run a parser; add its error and return None where it refuses."""
        try:
            return self._drive(parser)
        except BundleError as error:
            self._findings.refuse(error, subject)
            return None

    def _drive(self, parser: Parser[_Result]) -> _Result:
        return drive(parser, self._read)

    def _read(self, offset: int, length: int) -> bytes:
        """Return the bytes at an offset in the bundle; fewer where the file ends."""
        found = bytes(self._source.read(self._start + offset, length))
        self._left_to_read -= len(found)
        self._reads += 1
        if not self._reads % _READS_IN_MEMORY:
            release_pages(self._source.read(0, 0))
        return found

    def _warn(self, found: Iterator[BundleFinding]) -> None:
        for finding in found:
            self._findings.warning(finding)


def _block_length_parser() -> Parser[int]:
    block = yield from integrity_block_parser()
    return block.length if block is not None else 0


def _listed(metadata: Metadata) -> Sequence[_Listed]:
    listed: list[_Listed] = []
    for url, found in metadata.requests.items():
        if isinstance(found, VariantSet):
            listed += (_Listed(location, url, key, found.variants) for key, location in found.locations.items())
        else:
            listed.append(_Listed(found, url, None, ""))
    return listed
