"""Load a bundle's metadata (3.3): the preamble, the section lengths, then each section in the order of the file."""

from collections.abc import Callable
from typing import Final, TypeVar, get_args

from headgate.bundle.format.cbor import CborError
from headgate.bundle.format.constants import known_sections
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.bundle.format.index import Index, IndexRules, read_index
from headgate.bundle.format.preamble import Preamble, preamble_parser, raise_format_error, section_table_parser
from headgate.bundle.format.section_url import KEEP_RELATIVE, SectionError, check_base_url
from headgate.bundle.format.sections import read_critical, read_manifest, read_primary, read_signatures
from headgate.bundle.model import Metadata, Profile, Section, VouchedSubset
from headgate.errors import ConfigurationError
from headgate.http.url import parse_url

_Result = TypeVar("_Result")


def metadata_parser(*, profile: Profile = "strict", base_url: str | None = None) -> Parser[Metadata]:
    """Load a bundle's metadata (3.3); raises `FormatError` and `VersionError`, and requests no byte of a response.

    `base_url` is what b2's relative URLs are resolved against; without it, an absolute primary URL is. Without either
    they stay relative. Raises `ConfigurationError` for a base URL that is not absolute.
    """
    if profile not in get_args(Profile):
        raise ConfigurationError(f"{profile!r} is not a profile; expected strict or compat")
    check_base_url(base_url)
    preamble = yield from preamble_parser()
    sections = yield from section_table_parser(preamble)
    builder = MetadataBuilder(preamble, sections, profile, base_url)
    # Step 22, in file order; unknown sections are skipped (22.1), and the responses are not read (22.2).
    for section in sections[:-1]:
        if section.name in known_sections(preamble.version):
            builder.take(section, (yield from section_parser(section, preamble.primary_url)))
    return builder.metadata()


def section_parser(section: Section, fallback_url: str | None) -> Parser[bytes]:
    """Read the bytes of a section (steps 22.4 and 22.5)."""
    encoded = yield ReadRequest(section.offset, section.length)
    if len(encoded) < section.length:
        step = "3.3 step 22.5" if encoded else "3.3 step 22.4"
        fault = f"the section {section.name!r} of {section.length} bytes is cut"
        raise_format_error(fault, step, section.offset, fallback_url)
    return bytes(encoded)


class MetadataBuilder:
    """Builds metadata from the sections (3.3 steps 21 to 25)."""

    def __init__(
        self, preamble: Preamble, sections: tuple[Section, ...], profile: Profile, base_url: str | None
    ) -> None:
        self._preamble = preamble
        self._sections = sections
        self._profile = profile
        self._is_b2 = preamble.version == "b2"
        self._primary_url = preamble.primary_url
        # Only b2 has relative URLs.
        self._base_url = (base_url or KEEP_RELATIVE) if self._is_b2 else None
        # Its primary section, which may follow the index, is what they are relative to.
        self._waits = self._base_url == KEEP_RELATIVE and any(section.name == "primary" for section in sections)
        self._waiting: list[tuple[Section, bytes]] = []
        self._requests: Index | None = None
        self._manifest_url: str | None = None
        self._authorities: tuple[bytes, ...] = ()
        self._vouched_subsets: tuple[VouchedSubset, ...] = ()

    def take(self, section: Section, source: bytes) -> None:
        """Step 22.6: process what a section holds; raises `FormatError`."""
        if self._waits and section.name in ("index", "manifest"):
            self._waiting.append((section, source))
        else:
            self.read(section, source)

    def read(self, section: Section, source: bytes) -> None:
        """Process a section at once, even if a primary section follows; raises `FormatError`."""
        step, reader = _READERS[section.name]
        read_or_raise(lambda source: reader(self, source), source, step, section.offset, self._preamble.primary_url)

    def metadata(self) -> Metadata:
        """Steps 23 to 25."""
        if self._requests is None:
            raise_format_error(
                "the index section is missing", "3.3 step 24", self._preamble.position, self._preamble.primary_url
            )
        if self._manifest_url is None and not self._is_b2 and self._profile == "strict":
            fault = "the manifest section is missing; profile compat accepts that"
            raise_format_error(fault, "3.3 step 24", self._preamble.position, self._preamble.primary_url)
        return Metadata(
            self._preamble.version,
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
        read_critical(source, known_sections(self._preamble.version))

    def signatures(self, source: bytes) -> None:
        """Process the signatures section."""
        self._authorities, self._vouched_subsets = read_signatures(source)

    def primary(self, source: bytes) -> None:
        """Process b2's primary section, and the sections that waited for it."""
        self._primary_url = read_primary(source, self._base_url)
        if self._base_url == KEEP_RELATIVE and parse_url(self._primary_url) is not None:
            self._base_url = self._primary_url
        self._waits = False
        for section, waiting in self._waiting:
            self.take(section, waiting)


_READERS: Final[dict[str, tuple[str, Callable[[MetadataBuilder, bytes], None]]]] = {
    "index": ("3.3.1 step 1", MetadataBuilder.index),
    "manifest": ("3.3.2 step 1", MetadataBuilder.manifest),
    "critical": ("3.3.4 step 1", MetadataBuilder.critical),
    "signatures": ("3.3.3 step 1", MetadataBuilder.signatures),
    "primary": ("primary section", MetadataBuilder.primary),
}


def read_or_raise(
    reader: Callable[[bytes], _Result], source: bytes, step: str, offset: int, fallback_url: str | None
) -> _Result:
    """Parse with `reader`; raise its errors as format errors, with offsets from `offset` on."""
    try:
        return reader(source)
    except CborError as error:
        raise_format_error(error.reason, f"{step}, {error.step}", offset + error.offset, fallback_url)
    except SectionError as error:
        raise_format_error(error.reason, error.step, offset + error.offset, fallback_url)
