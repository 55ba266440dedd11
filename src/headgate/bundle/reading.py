"""What the sections before the responses say, taken one by one in the order of the file (3.3 steps 21 to 25)."""

from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from msgspec import Struct

from headgate.bundle.cbor import CborError
from headgate.bundle.index import Index, IndexRules, read_index
from headgate.bundle.metadata import Metadata, Profile, Section, Version, VouchedSubset
from headgate.bundle.section import KEPT, SectionError
from headgate.bundle.sections import read_critical, read_manifest, read_primary, read_signatures
from headgate.errors import FormatError
from headgate.http.url import parse_url

__all__ = ["Lead", "Reading", "checked", "known_sections", "refuse"]

_Result = TypeVar("_Result")

_KNOWN: Final = frozenset({"index", "manifest", "critical", "signatures", "responses"})


class Lead(Struct, frozen=True):
    """What stands before the sections."""

    array_head: int
    version: Version
    primary_url: str | None
    """Also the fallback URL; None in b2, which tells it in a section."""
    position: int
    """Where the section lengths begin."""


def known_sections(version: Version) -> frozenset[str]:
    """Give the names of the sections that are implemented here for a version (3.3 step 15)."""
    return _KNOWN | {"primary"} if version == "b2" else _KNOWN


class Reading:
    """What the sections have said so far (3.3 steps 21 to 25)."""

    def __init__(self, lead: Lead, sections: tuple[Section, ...], profile: Profile, base_url: str | None) -> None:
        self._lead = lead
        self._sections = sections
        self._profile = profile
        self._is_b2 = lead.version == "b2"
        self._primary_url = lead.primary_url
        # Only b2 has relative URLs.
        self._base_url = (base_url or KEPT) if self._is_b2 else None
        # Its primary section may stand behind the index, and says what they are relative to.
        self._waits = self._base_url == KEPT and any(section.name == "primary" for section in sections)
        self._waiting: list[tuple[Section, bytes]] = []
        self._requests: Index | None = None
        self._manifest_url: str | None = None
        self._authorities: tuple[bytes, ...] = ()
        self._vouched_subsets: tuple[VouchedSubset, ...] = ()

    def take(self, section: Section, source: bytes) -> None:
        """Step 22.6: process what a section holds; raises `FormatError`."""
        if self._waits and section.name in ("index", "manifest"):
            self._waiting.append((section, source))
            return
        step, reader = _READERS[section.name]
        checked(lambda source: reader(self, source), source, step, section.offset, self._lead.primary_url)

    def metadata(self) -> Metadata:
        """Steps 23 to 25."""
        if self._requests is None:
            refuse("there is no index", "3.3 step 24", self._lead.position, self._lead.primary_url)
        if self._manifest_url is None and not self._is_b2 and self._profile == "strict":
            fault = "there is no manifest; profile compat takes that"
            refuse(fault, "3.3 step 24", self._lead.position, self._lead.primary_url)
        return Metadata(
            self._lead.version,
            self._primary_url,
            self._manifest_url,
            self._requests,
            self._sections,
            self._authorities,
            self._vouched_subsets,
        )

    def index(self, source: bytes) -> None:
        """Process the index section."""
        self._requests = read_index(source, IndexRules(self._sections[-1], not self._is_b2, self._base_url))

    def manifest(self, source: bytes) -> None:
        """Process the manifest section."""
        self._manifest_url = read_manifest(source, self._base_url)

    def critical(self, source: bytes) -> None:
        """Process the critical section."""
        read_critical(source, known_sections(self._lead.version))

    def signatures(self, source: bytes) -> None:
        """Process the signatures section."""
        self._authorities, self._vouched_subsets = read_signatures(source)

    def primary(self, source: bytes) -> None:
        """Process b2's primary section, and what waited for it."""
        self._primary_url = read_primary(source, self._base_url)
        if self._base_url == KEPT and parse_url(self._primary_url) is not None:
            self._base_url = self._primary_url
        self._waits = False
        for section, waiting in self._waiting:
            self.take(section, waiting)


_READERS: Final[dict[str, tuple[str, Callable[[Reading, bytes], None]]]] = {
    "index": ("3.3.1 step 1", Reading.index),
    "manifest": ("3.3.2 step 1", Reading.manifest),
    "critical": ("3.3.4 step 1", Reading.critical),
    "signatures": ("3.3.3 step 1", Reading.signatures),
    "primary": ("primary section", Reading.primary),
}


def checked(
    reader: Callable[[bytes], _Result], source: bytes, step: str, offset: int, fallback_url: str | None
) -> _Result:
    """Let `reader` parse what stands at `offset`; what it refuses is a format error."""
    try:
        return reader(source)
    except CborError as error:
        refuse(error.reason, f"{step}, {error.step}", offset + error.offset, fallback_url)
    except SectionError as error:
        refuse(error.reason, error.step, offset + error.offset, fallback_url)


def refuse(reason: str, step: str, offset: int, fallback_url: str | None) -> NoReturn:
    """Raise a `FormatError`."""
    raise FormatError(reason, step=step, offset=offset, fallback_url=fallback_url)
