"""The two operations of the document, step by step: load a bundle's metadata (3.3), load a response from it (3.4).

Both are generators that are fed bytes (`need`), so that bytes, files, streams and HTTP ranges have one parser. This
file knows the order of the steps and what each refusal is called; what a section holds is told in `index` and
`sections`, what a header map holds in `fields`.
"""

import re
from typing import Final, get_args

from msgspec import Struct

from headgate.bundle.cbor import ARRAY, BYTES, TEXT, CborError, Items, head_size, read_head
from headgate.bundle.fields import FieldError, read_common_fields, read_fields
from headgate.bundle.metadata import Location, Metadata, Profile, Section, Version
from headgate.bundle.need import Need, Parser
from headgate.bundle.reading import Lead, Reading, checked, known_sections, refuse
from headgate.bundle.section import check_base_url
from headgate.errors import ConfigurationError, FormatError, ResponseError, VersionError
from headgate.http.url import parse_url

__all__ = [
    "FIRST_READ",
    "MOST_HEADERS",
    "MOST_SECTION_LENGTHS",
    "NOSNIFF",
    "ResponseHead",
    "lead_parser",
    "metadata_parser",
    "read_usual_response",
    "response_parser",
    "section_table_parser",
]

MAGIC: Final = b"\x48\xf0\x9f\x8c\x90\xf0\x9f\x93\xa6"
MOST_SECTION_LENGTHS: Final = 8_192
"""Bytes of section lengths that are refused, and all above (3.3 step 9)."""
MOST_HEADERS: Final = 524_288
"""Bytes of a response's header map that are refused, and all above (3.4 step 4)."""
NOSNIFF: Final = ("x-content-type-options", "nosniff")
"""What a reader appends, so that nobody guesses a payload's media type (3.4 step 9)."""

_VERSIONS: Final[dict[bytes, Version]] = {b"1\0\0\0": "draft-01", b"b1\0\0": "b1", b"b2\0\0": "b2"}
_LAYOUTS: Final[dict[int, tuple[Version, ...]]] = {0x84: ("draft-01", "b1"), 0x86: ("draft-01", "b1"), 0x85: ("b2",)}
"""From the array's head to the versions that have its layout: the document's text says 0x84, its CDDL has six items."""

_LONGEST_HEAD: Final = 9
_LONGEST_HEADS: Final = 10
FIRST_READ: Final = 1_024
"""Bytes that are asked for at once: enough for the headers of nearly any response."""

_USUAL_HEADERS: Final = re.compile(rb"\x82(?:\x58[\x18-\xff]|\x59(?!\x00)..)", re.DOTALL)
_USUAL_PAYLOAD: Final = re.compile(rb"[\x40-\x57]|\x58[\x18-\xff]|\x59(?!\x00)..|\x5a(?!\x00\x00)....", re.DOTALL)
"""Heads of byte strings in their only encoding: of 24 to 65535 bytes, and of less than four gigabytes."""


class ResponseHead(Struct, frozen=True):
    """A response up to its payload (3.4 steps 1 to 11)."""

    status: int
    stored_headers: dict[str, str]
    """The headers as the bundle has them: names in lower case, values as Latin-1."""
    payload: Location

    @property
    def headers(self) -> dict[str, str]:
        """The headers with `x-content-type-options: nosniff`, so that no media type is guessed (3.4 step 9)."""
        return {**self.stored_headers, NOSNIFF[0]: NOSNIFF[1]}


def metadata_parser(*, profile: Profile = "strict", base_url: str | None = None) -> Parser[Metadata]:
    """Load a bundle's metadata (3.3); raises `FormatError` and `VersionError`, and asks for no byte of a response.

    `base_url` is what b2's relative URLs are relative to; without it that is an absolute primary URL, and without that
    they are kept as they stand. `ConfigurationError` for a base URL that is not one.
    """
    if profile not in get_args(Profile):
        raise ConfigurationError(f"{profile!r} is no profile of bundles; try strict or compat")
    check_base_url(base_url)
    lead = yield from lead_parser()
    sections = yield from section_table_parser(lead)
    reading = Reading(lead, sections, profile, base_url)
    # Step 22, in file order; unknown sections are stepped over (22.1), and the responses are not read (22.2).
    for section in sections[:-1]:
        if section.name in known_sections(lead.version):
            encoded = yield Need(section.offset, section.length)
            if len(encoded) < section.length:
                step = "3.3 step 22.5" if encoded else "3.3 step 22.4"
                fault = f"the section {section.name!r} of {section.length} bytes is cut"
                refuse(fault, step, section.offset, lead.primary_url)
            reading.take(section, bytes(encoded))
    return reading.metadata()


def lead_parser() -> Parser[Lead]:
    """Steps 1 to 7: magic, version and, but for b2, the primary URL, which from then on is the fallback URL."""
    magic = bytes((yield Need(0, 10)))
    layout = _LAYOUTS.get(magic[0]) if magic else None
    if layout is None or magic[1:] != MAGIC:
        raise FormatError(f"not a bundle: it begins with {magic.hex(' ') or 'nothing'}", step="3.3 step 2", offset=0)
    version_item = bytes((yield Need(10, 5)))
    if len(version_item) < 5:
        raise FormatError("the version is cut", step="3.3 step 3", offset=10)
    position, url = (15, None) if "b2" in layout else (yield from _primary_url())
    name = version_item[1:]
    version = _VERSIONS.get(name)
    if version_item[0] != 0x44 or version is None:
        raise VersionError(f"version {name!r} is not known here", step="3.3 step 7", offset=10, fallback_url=url)
    if version not in layout:
        fault = f"version {version} does not begin with 0x{magic[0]:02x}"
        raise FormatError(fault, step="3.3 step 7", offset=10, fallback_url=url)
    return Lead(magic[0], version, url, position)


def _primary_url() -> Parser[tuple[int, str]]:
    """Steps 4 to 6."""
    major, size, position = yield from _head(15, "3.3 step 4", None)
    if major != TEXT:
        raise FormatError("the primary URL is no text string", step="3.3 step 4", offset=15)
    encoded = yield Need(position, size)
    if len(encoded) < size:
        fault = f"the primary URL of {size} bytes is cut"
        raise FormatError(fault, step="3.3 step 5", offset=position)
    try:
        url = parse_url(bytes(encoded).decode())
    except UnicodeDecodeError:
        url = None
    if url is None:
        fault = f"the primary URL {bytes(encoded[:200])!r} is no absolute URL"
        raise FormatError(fault, step="3.3 step 6", offset=position)
    return position + size, url


def section_table_parser(lead: Lead) -> Parser[tuple[Section, ...]]:
    """Steps 8 to 20: which sections there are, and where."""
    fallback = lead.primary_url
    start = lead.position
    major, size, position = yield from _head(start, "3.3 step 8", fallback)
    if major != BYTES:
        refuse("the section lengths are no byte string", "3.3 step 8, 3.5.2 step 2", start, fallback)
    if size >= MOST_SECTION_LENGTHS:
        refuse(f"{size} bytes of section lengths, of which fewer than 8192 are taken", "3.3 step 9", start, fallback)
    encoded = yield Need(position, size)
    if len(encoded) < size:
        refuse(f"the section lengths of {size} bytes are cut", "3.3 step 10", position, fallback)
    lengths = checked(_read_section_lengths, bytes(encoded), "3.3 step 11", position, fallback)
    start = position + size
    major, count, position = yield from _head(start, "3.3 step 12", fallback)
    if major != ARRAY or count != len(lengths):
        fault = f"an array of {len(lengths)} sections belongs here, not {count} items of major type {major}"
        refuse(fault, "3.3 step 13", start, fallback)
    sections: dict[str, Section] = {}
    for name, length in lengths:
        if name in sections:
            refuse(f"the section {name[:80]!r} appears twice", "3.3 step 19.2", lead.position, fallback)
        sections[name] = Section(name, position, length)
        position += length
    if not lengths or lengths[-1][0] != "responses":
        refuse("the last section is not responses", "3.3 step 20", lead.position, fallback)
    return tuple(sections.values())


def _read_section_lengths(source: bytes) -> list[tuple[str, int]]:
    items = Items(source)
    count = items.array()
    if count % 2:
        raise CborError(f"{count} items are no pairs of name and length", "3.5.1 step 5", 0)
    lengths = [(items.text(), items.uint()) for _ in range(count // 2)]
    items.end()
    return lengths


def response_parser(
    location: Location, *, profile: Profile = "strict", fallback_url: str | None = None
) -> Parser[ResponseHead]:
    """Load a response up to its payload (3.4 steps 1 to 11); raises `ResponseError`.

    Whether the payload is all there is for the driver to see, who alone knows if it wants it (step 12).
    """
    start = location.offset
    # Step 1, and as much of the response as its headers usually take.
    source = bytes((yield Need(start, min(location.length, FIRST_READ))))
    usual = read_usual_response(source, location)
    if usual is not None:
        return usual
    try:
        # The document reads on where a location is too short, and says so in step 11.
        if len(source) < _LONGEST_HEADS:
            source = bytes((yield Need(start, _LONGEST_HEADS)))
        size, headers_begin = _header_length(source)
        headers_end = headers_begin + size
        if len(source) < headers_end + _LONGEST_HEAD:
            source = bytes((yield Need(start, headers_end + _LONGEST_HEAD)))
        if len(source) < headers_end:
            raise _StepError(f"the headers of {size} bytes are cut", "3.4 step 5", headers_begin)
        status, headers = _headers(source[headers_begin:headers_end], headers_begin)
        payload_length, payload_begins = _string_head(source, headers_end, "3.4 step 10")
        # Step 9 comes before step 10, but whether an empty payload excuses it (compat) is known only now.
        if "content-type" not in headers and (profile == "strict" or payload_length):
            raise _StepError("there is no content-type", "3.4 step 9", headers_begin)
        if payload_begins + payload_length != location.length:
            fault = f"the response takes {payload_begins + payload_length} bytes, its location {location.length}"
            raise _StepError(fault, "3.4 step 11", payload_begins)
    except _StepError as error:
        raise ResponseError(
            error.reason, step=error.step, offset=start + error.offset, fallback_url=fallback_url
        ) from None
    return ResponseHead(status, headers, Location(start + payload_begins, payload_length))


def read_usual_response(source: bytes, location: Location) -> ResponseHead | None:
    """Read a response up to its payload from its first bytes, if nothing about it is unusual; else None.

    What it takes, `response_parser` takes too, and gives the same; a property test holds them equal.
    """
    lead = _USUAL_HEADERS.match(source)
    if lead is None:
        return None
    begin = lead.end()
    end = begin + int.from_bytes(source[2:begin])
    lead = _USUAL_PAYLOAD.match(source, end)
    if lead is None:
        return None
    payload = lead.end()
    length = int.from_bytes(source[end + 1 : payload]) if payload > end + 1 else source[end] - 0x40
    found = read_common_fields(source[begin:end])
    if found is None or payload + length != location.length:
        return None
    headers, status = found
    if len(status) != 3 or not status.isdigit() or "content-type" not in headers:
        return None
    return ResponseHead(int(status), headers, Location(location.offset + payload, length))


class _StepError(Exception):
    """A step is broken: why, which one, and at which byte of the response."""

    def __init__(self, reason: str, step: str, offset: int) -> None:
        super().__init__(reason, step, offset)
        self.reason = reason
        self.step = step
        self.offset = offset


def _header_length(source: bytes) -> tuple[int, int]:
    """Steps 2 to 4: the length of the header map, and where it begins."""
    if not source:
        raise _StepError("the bundle ends before the response", "3.4 step 1", 0)
    if source[0] != 0x82:
        raise _StepError(f"the response begins with 0x{source[0]:02x}, not 0x82", "3.4 step 2", 0)
    length, begins = _string_head(source, 1, "3.4 step 3")
    if length >= MOST_HEADERS:
        fault = f"{length} bytes of headers, of which fewer than {MOST_HEADERS} are taken"
        raise _StepError(fault, "3.4 step 4", 1)
    return length, begins


def _headers(source: bytes, offset: int) -> tuple[int, dict[str, str]]:
    """Steps 5 to 8: status and headers."""
    try:
        headers, pseudos = read_fields(source)
    except CborError as error:
        raise _StepError(error.reason, f"3.4 step 5, {error.step}", offset + error.offset) from None
    except FieldError as error:
        raise _StepError(error.reason, f"3.4 step 6, {error.step}", offset) from None
    if pseudos.keys() != {b":status"}:
        names = ", ".join(repr(name[:40]) for name in list(pseudos)[:4]) or "none"
        raise _StepError(f"the pseudo-headers must be :status alone, and are {names}", "3.4 step 7", offset)
    status = pseudos[b":status"]
    if len(status) != 3 or not status.isdigit():
        raise _StepError(f"the status {status[:40]!r} is not three digits", "3.4 step 8", offset)
    return int(status), headers


def _string_head(source: bytes, position: int, step: str) -> tuple[int, int]:
    """Get the length of a CBOR bytestring header (3.5.2), and where its contents begin."""
    try:
        major, length, contents = read_head(source, position)
    except CborError as error:
        raise _StepError(error.reason, f"{step}, {error.step}", error.offset) from None
    if major != BYTES:
        raise _StepError("there is no byte string", f"{step}, 3.5.2 step 2", position)
    return length, contents


def _head(position: int, step: str, fallback_url: str | None) -> Parser[tuple[int, int, int]]:
    """Parse the type and argument of a CBOR item from the stream (3.5.3), asking for not one byte too many."""
    first = bytes((yield Need(position, 1)))
    rest = bytes((yield Need(position + 1, size - 1))) if first and (size := head_size(first[0])) > 1 else b""
    try:
        major, argument, length = read_head(first + rest)
    except CborError as error:
        refuse(error.reason, f"{step}, {error.step}", position, fallback_url)
    return major, argument, position + length
