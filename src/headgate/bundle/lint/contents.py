"""What the sections before the responses say: each read as a reader does, and again where that refuses it."""

from collections.abc import Callable
from typing import Final, TypeVar

from headgate.bundle.format.constants import known_sections
from headgate.bundle.format.index import IndexRules, read_index
from headgate.bundle.format.metadata import read_or_raise
from headgate.bundle.format.preamble import Preamble
from headgate.bundle.format.section_url import KEPT
from headgate.bundle.format.sections import read_critical, read_manifest, read_primary, read_signatures
from headgate.bundle.lint.file import File
from headgate.bundle.lint.finding import Finding, Notes
from headgate.bundle.lint.index import ListedIndex, listed_index, walk_index
from headgate.bundle.lint.passage import Passage
from headgate.bundle.lint.sections import walk_critical, walk_signatures
from headgate.bundle.lint.table import Table
from headgate.bundle.model import Section
from headgate.errors import BundleError
from headgate.http.url import parse_url

__all__ = ["Contents"]

_Result = TypeVar("_Result")

_NOWHERE: Final = Section("responses", 0, 1 << 66)
"""Where there are no responses, every location is outside; that has been said, and is not said of each."""


class Contents:
    """What was found in the sections."""

    primary_url: str | None
    index: ListedIndex

    def __init__(self, file: File, notes: Notes, lead: Preamble, table: Table, base_url: str | None) -> None:
        self.primary_url = lead.primary_url
        self.index = ListedIndex((), [], is_whole=False)
        self._file = file
        self._notes = notes
        self._lead = lead
        self._table = table
        self._is_b2 = lead.version == "b2"
        # Only b2 has relative URLs.
        self._base_url = (base_url or lead.primary_url or KEPT) if self._is_b2 else None
        self._manifests: list[tuple[str, Section]] = []
        self._indexes: list[ListedIndex] = []

    def walk(self) -> None:
        """Walk all of them; of those with one name the first counts, and all are looked at."""
        known = known_sections(self._lead.version)
        # What b2's other URLs are relative to is told by its primary section, wherever that is.
        for section in sorted(self._table.others, key=lambda section: section.name != "primary"):
            if section.name in known:
                _WALKS[section.name](self, section)
        if self._indexes:
            self.index = self._indexes[0]
        if self.index.is_whole:
            self._contained()
        if self._base_url == KEPT:
            self._relative()

    def has(self, name: str) -> bool:
        """Say whether there is a section of this name."""
        return any(section.name == name for section in self._table.others)

    def take_index(self, section: Section) -> None:
        """Walk an index section."""
        rules = IndexRules(self._table.responses or _NOWHERE, not self._is_b2, self._base_url)
        found = self._read(
            section,
            "3.3.1 step 1",
            lambda source: listed_index(read_index(source, rules)),
            lambda passage: walk_index(passage, rules),
        )
        self._indexes.append(found)

    def take_manifest(self, section: Section) -> None:
        """Walk a manifest section."""
        url = self._read_url(section, "3.3.2 step 1", read_manifest)
        if url is not None:
            self._manifests.append((url, section))

    def take_primary(self, section: Section) -> None:
        """Walk a primary section."""
        url = self._read_url(section, "primary section", read_primary)
        if url is None or self.primary_url is not None:
            return
        self.primary_url = url
        if self._base_url == KEPT and parse_url(url) is not None:
            self._base_url = url
        elif self._base_url == KEPT:
            self._notes.warning(_relative(url, section.offset))

    def take_critical(self, section: Section) -> None:
        """Walk a critical section."""
        known = known_sections(self._lead.version)
        self._read(
            section,
            "3.3.4 step 1",
            lambda source: read_critical(source, known),
            lambda passage: walk_critical(passage, known),
        )

    def take_signatures(self, section: Section) -> None:
        """Walk a signatures section."""
        self._read(section, "3.3.3 step 1", _check_signatures, walk_signatures)

    def _read_url(self, section: Section, step: str, reader: Callable[[bytes, str | None], str]) -> str | None:
        base_url = self._base_url
        return self._read(
            section,
            step,
            lambda source: reader(source, base_url),
            lambda passage: passage.read(lambda source: reader(source, base_url)),
        )

    def _read(
        self, section: Section, step: str, reader: Callable[[bytes], _Result], walk: Callable[[Passage], _Result]
    ) -> _Result:
        """Read a section, and walk what is there of it where a reader refuses it."""
        source = self._file.read(section.offset, section.length)
        if len(source) < section.length:
            fault = f"the section {section.name!r} of {section.length} bytes is cut"
            self._notes.fault(fault, "3.3 step 22.5" if source else "3.3 step 22.4", section.offset)
            return walk(Passage(source, step, section.offset, self._notes, is_cut=True))
        try:
            return read_or_raise(reader, source, step, section.offset, None)
        except BundleError as error:
            return self._notes.again(error, lambda: walk(Passage(source, step, section.offset, self._notes)))

    def _contained(self) -> None:
        """Look for the manifest where it must be."""
        for url, section in self._manifests:
            if url not in self.index.urls:
                fault = f"the manifest {url} is not in the bundle"
                # 3.3.2: "The URL MUST refer to the one or more response(s) contained in the bundle itself."
                self._notes.error(Finding("manifest-not-in-bundle", fault, "3.3.2", section.offset))

    def _relative(self) -> None:
        """Warn of URLs that stay relative."""
        for url, section in self._manifests:
            if parse_url(url) is None:
                self._notes.warning(_relative(url, section.offset))
        for url in self.index.urls:
            if parse_url(url) is None:
                self._notes.warning(_relative(url, None))


def _check_signatures(source: bytes) -> None:
    read_signatures(source)


def _relative(url: str, offset: int | None) -> Finding:
    fault = f"the URL {url[:200]!r} is relative, and there is no base URL: it is kept, and found, as it stands"
    return Finding("relative-url", fault, "3.3.1 step 4.1", offset)


_WALKS: Final[dict[str, Callable[[Contents, Section], None]]] = {
    "index": Contents.take_index,
    "manifest": Contents.take_manifest,
    "critical": Contents.take_critical,
    "signatures": Contents.take_signatures,
    "primary": Contents.take_primary,
}
