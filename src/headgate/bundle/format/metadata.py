"""Load a bundle's metadata (3.3): the preamble, the section lengths, then each section in the order of the file.

Also the length that ends a bundle, by which one that was appended to something else is found (3.3.6).
"""

from typing import Any, Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from headgate.bundle.format.cbor import ARRAY, BYTES, TEXT, CborError, Items, StepError, head_parser
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.bundle.format.sections import (
    KEEP_RELATIVE,
    IndexRules,
    any_url,
    check_base_url,
    read_critical,
    read_index,
    read_lone_text,
    read_signatures,
    section_url,
)
from headgate.bundle.model import Metadata, Profile, Section, Version
from headgate.errors import FormatError, VersionError, fail_if
from headgate.http.url import parse_url

MAGIC: Final = b"\x48\xf0\x9f\x8c\x90\xf0\x9f\x93\xa6"
"""The CBOR byte string that follows the head of the array (3.3 step 2)."""

VERSION_BYTES: Final[dict[Version, bytes]] = {"draft-01": b"1\0\0\0", "b1": b"b1\0\0", "b2": b"b2\0\0"}
"""From each version to its name in a bundle."""
_VERSIONS: Final = {name: version for version, name in VERSION_BYTES.items()}
_VERSIONS_BY_ARRAY_HEAD: Final[dict[int, tuple[Version, ...]]] = {
    0x84: ("draft-01", "b1"),
    0x86: ("draft-01", "b1"),
    0x85: ("b2",),
}
"""From the first byte to the versions with its layout: the document's text says 0x84, but its CDDL has six items."""

MAX_SECTION_TABLE_SIZE: Final = 8_192
"""Section lengths of this many bytes or more are a format error (3.3 step 9)."""

TRAILER_SIZE: Final = 9
"""Bytes of the length at the end of a bundle: the head of an 8-byte string and a big-endian integer (3.3.6)."""
MAX_UNTRUSTED_SECTION: Final = 16 << 20
"""Bytes of a section of a bundle that is fetched or arrives: an index of that size takes 200 MB of memory."""
_SECTIONS: Final = frozenset({"index", "manifest", "critical", "signatures", "responses"})
"""The names in the document's registry (6.2)."""


def known_sections(version: Version) -> frozenset[str]:
    """Return the names of the sections that are implemented for a version (3.3 step 15)."""
    return _SECTIONS | {"primary"} if version == "b2" else _SECTIONS


def metadata_parser(
    *, profile: Profile = "strict", base_url: str | None = None, max_section: int | None = None
) -> Parser[Metadata]:
    """Load a bundle's metadata (3.3); raises `FormatError` and `VersionError`, and requests no byte of a response.

    `base_url` is what b2's relative URLs are resolved against; without it, an absolute primary URL is. Without either
    they stay relative. `max_section` limits the bytes of each section that is held. Raises `ConfigurationError`
    for a base URL that is not absolute.
    """
    fail_if(profile not in get_args(Profile), f"{profile!r} is not a profile; expected strict or compat")
    check_base_url(base_url)
    preamble = yield from preamble_parser(max_section)
    sections = yield from section_table_parser(preamble)
    builder = MetadataBuilder(preamble, sections, base_url, max_section)
    # Step 22, in file order; unknown sections are skipped (22.1), and the responses are not read (22.2).
    for section in sections[:-1]:
        if section.name in known_sections(preamble.version):
            yield from builder.section_parser(section)
    return builder.metadata(profile)


class Preamble(Struct, frozen=True):
    """What precedes the section lengths."""

    array_head: int
    version: Version
    primary_url: str | None
    """Also the fallback URL; None in b2, which has it in a section."""
    position: int
    """Where the section lengths begin."""

    def error(self, reason: str, step: str, offset: int | None = None) -> FormatError:
        """Return an error with the fallback URL, of the section lengths if no offset is given."""
        place = self.position if offset is None else offset
        return FormatError(reason, step=step, offset=place, fallback_url=self.primary_url)


def preamble_parser(max_url: int | None = None) -> Parser[Preamble]:
    """Parse magic, version and, except in b2, the primary URL: the fallback URL of all later errors (steps 1 to 7)."""
    magic = bytes((yield ReadRequest(0, 10)))
    layout = _VERSIONS_BY_ARRAY_HEAD.get(magic[0]) if magic else None
    if layout is None or magic[1:] != MAGIC:
        raise FormatError(f"not a bundle: it begins with {magic.hex(' ') or 'nothing'}", step="3.3 step 2", offset=0)
    version_item = bytes((yield ReadRequest(10, 5)))
    if len(version_item) < 5:
        raise FormatError("the version is cut", step="3.3 step 3", offset=10)
    position, url = (15, None) if "b2" in layout else (yield from _primary_url(max_url))
    name = version_item[1:]
    version = _VERSIONS.get(name)
    if version_item[0] != 0x44 or version is None:
        raise VersionError(f"version {name!r} is not known here", step="3.3 step 7", offset=10, fallback_url=url)
    if version not in layout:
        fault = f"version {version} does not begin with 0x{magic[0]:02x}"
        raise FormatError(fault, step="3.3 step 7", offset=10, fallback_url=url)
    return Preamble(magic[0], version, url, position)


def section_table_parser(preamble: Preamble) -> Parser[tuple[Section, ...]]:
    """Parse the section lengths: which sections there are, and where (steps 8 to 20)."""
    start, fallback = preamble.position, preamble.primary_url
    major, size, position = yield from _head(start, "3.3 step 8", fallback)
    if major != BYTES:
        raise preamble.error("the section lengths are not a byte string", "3.3 step 8, 3.5.2 step 2")
    if size >= MAX_SECTION_TABLE_SIZE:
        raise preamble.error(f"{size} bytes of section lengths; the maximum is 8191", "3.3 step 9")
    encoded = yield ReadRequest(position, size)
    if len(encoded) < size:
        raise preamble.error(f"the section lengths of {size} bytes are cut", "3.3 step 10", position)
    try:
        lengths = _read_section_lengths(bytes(encoded))
    except CborError as error:
        raise preamble.error(error.reason, f"3.3 step 11, {error.step}", position + error.offset) from None
    start = position + size
    major, count, position = yield from _head(start, "3.3 step 12", fallback)
    if major != ARRAY or count != len(lengths):
        fault = f"expected an array of {len(lengths)} sections, got {count} items of major type {major}"
        raise preamble.error(fault, "3.3 step 13", start)
    sections: dict[str, Section] = {}
    for name, length in lengths:
        if name in sections:
            raise preamble.error(f"the section {name[:80]!r} appears twice", "3.3 step 19.2")
        sections[name] = Section(name, position, length)
        position += length
    if not lengths or lengths[-1][0] != "responses":
        raise preamble.error("the last section is not responses", "3.3 step 20")
    return tuple(sections.values())


class MetadataBuilder:
    """Builds metadata from the sections (3.3 steps 21 to 25)."""

    def __init__(
        self,
        preamble: Preamble,
        sections: tuple[Section, ...],
        base_url: str | None = None,
        max_section: int | None = None,
    ) -> None:
        self._preamble = preamble
        self._max_section = max_section
        self._is_b2 = preamble.version == "b2"
        # Only b2 has relative URLs.
        self._base_url = (base_url or KEEP_RELATIVE) if self._is_b2 else None
        # Its primary section, which may follow the index, is what they are relative to.
        self._waits = self._base_url == KEEP_RELATIVE and any(section.name == "primary" for section in sections)
        self._waiting: list[tuple[Section, bytes]] = []
        self._found = Metadata(preamble.version, preamble.primary_url, None, {}, sections)
        self.has_index = False
        """Whether the index was processed."""

    def section_parser(self, section: Section) -> Parser[None]:
        """Read and process a known section (steps 22.4 to 22.6)."""
        name, length = section.name, section.length
        if self._max_section is not None and length > self._max_section:
            fault = f"the section {name!r} of {length} bytes exceeds the limit of {self._max_section}"
            raise self._preamble.error(fault, "3.3 step 22.5", section.offset)
        source = bytes((yield ReadRequest(section.offset, length)))
        if len(source) < length:
            step = "3.3 step 22.5" if source else "3.3 step 22.4"
            raise self._preamble.error(f"the section {name!r} of {length} bytes is cut", step, section.offset)
        if self._waits and name in ("index", "manifest"):
            self._waiting.append((section, source))
        else:
            self._take(section, source)

    def _take(self, section: Section, source: bytes) -> None:
        try:
            self._found = replace(self._found, **self._members(section.name, source))
        except StepError as error:
            step = f"{_STEPS[section.name]}, {error.step}" if isinstance(error, CborError) else error.step
            raise self._preamble.error(error.reason, step, section.offset + error.offset) from None
        if section.name == "primary":
            for waiting in self._waiting:
                self._take(*waiting)

    def _members(self, name: str, source: bytes) -> dict[str, Any]:
        """Return what a section holds, as members of `Metadata`; raises `StepError`."""
        match name:
            case "index":
                rules = IndexRules(self._found.sections[-1], not self._is_b2, self._base_url)
                requests = read_index(source, rules)
                self.has_index = True
                return {"requests": requests}
            case "manifest":
                return {"manifest_url": section_url(read_lone_text(source), self._base_url, "3.3.2 step 3", 0)}
            case "critical":
                read_critical(source, known_sections(self._preamble.version))
            case "signatures":
                authorities, vouched_subsets = read_signatures(source)
                return {"authorities": authorities, "vouched_subsets": vouched_subsets}
            case "primary":
                self._waits = False
                # It may have a fragment, as draft-01's primary URL.
                url = any_url(read_lone_text(source), self._base_url, "primary section", 0)
                if self._base_url == KEEP_RELATIVE and parse_url(url) is not None:
                    self._base_url = url
                return {"primary_url": url}
        return {}

    def metadata(self, profile: Profile) -> Metadata:
        """Steps 23 to 25."""
        if not self.has_index:
            raise self._preamble.error("the index section is missing", "3.3 step 24")
        if self._found.manifest_url is None and not self._is_b2 and profile == "strict":
            raise self._preamble.error("the manifest section is missing; profile compat accepts that", "3.3 step 24")
        return self._found


_STEPS: Final = {
    "index": "3.3.1 step 1",
    "manifest": "3.3.2 step 1",
    "critical": "3.3.4 step 1",
    "signatures": "3.3.3 step 1",
    "primary": "primary section",
}
"""The step that decodes each section."""


def _primary_url(max_length: int | None) -> Parser[tuple[int, str]]:
    """Steps 4 to 6."""
    major, size, position = yield from _head(15, "3.3 step 4", None)
    if major != TEXT:
        raise FormatError("the primary URL is not a text string", step="3.3 step 4", offset=15)
    if max_length is not None and size > max_length:
        fault = f"the primary URL of {size} bytes exceeds the limit of {max_length}"
        raise FormatError(fault, step="3.3 step 5", offset=position)
    encoded = yield ReadRequest(position, size)
    if len(encoded) < size:
        fault = f"the primary URL of {size} bytes is cut"
        raise FormatError(fault, step="3.3 step 5", offset=position)
    try:
        url = parse_url(bytes(encoded).decode())
    except UnicodeDecodeError:
        url = None
    if url is None:
        fault = f"the primary URL {bytes(encoded[:200])!r} is not an absolute URL"
        raise FormatError(fault, step="3.3 step 6", offset=position)
    return position + size, url


def _read_section_lengths(source: bytes) -> list[tuple[str, int]]:
    items = Items(source)
    count = items.array()
    if count % 2:
        raise CborError(f"{count} items are not pairs of name and length", "3.5.1 step 5", 0)
    lengths = [(items.text(), items.uint()) for _ in range(count // 2)]
    items.end()
    return lengths


def trailer_parser(size: int) -> Parser[int]:
    """Return where the bundle begins that ends with the last of `size` bytes (3.3.6 steps 1 to 4)."""
    offset = max(size - TRAILER_SIZE, 0)
    trailer = bytes((yield ReadRequest(offset, TRAILER_SIZE)))
    if len(trailer) < TRAILER_SIZE or trailer[0] != 0x48:
        fault = f"no 8-byte string ends the file, which has {size} bytes"
        raise FormatError(fault, step="3.3.6 step 1", offset=offset)
    length = int.from_bytes(trailer[1:], "big")
    if length > size:
        fault = f"a bundle of {length} bytes does not fit in the {size} there are"
        raise FormatError(fault, step="3.3.6 step 3", offset=size - 8)
    return size - length


def _head(position: int, step: str, fallback_url: str | None) -> Parser[tuple[int, int, int]]:
    """Parse the type and argument of an item; return both, and where its contents begin."""
    try:
        major, argument, encoded = yield from head_parser(position)
    except CborError as error:
        step = f"{step}, {error.step}"
        raise FormatError(error.reason, step=step, offset=position, fallback_url=fallback_url) from None
    return major, argument, position + len(encoded)
