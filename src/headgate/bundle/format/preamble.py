"""What precedes the sections: magic, version, primary URL and section lengths (3.3 steps 1 to 20).

Also the length that ends a bundle, by which one that was appended to something else is found (3.3.6).
"""

from typing import Final, NoReturn

from msgspec import Struct

from headgate.bundle.format.cbor import ARRAY, BYTES, TEXT, CborError, Items, head_size, read_head
from headgate.bundle.format.constants import (
    MAGIC,
    MAX_SECTION_TABLE_SIZE,
    TRAILER_SIZE,
    VERSION_BYTES,
    VERSIONS_BY_ARRAY_HEAD,
)
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.bundle.model import Section, Version
from headgate.errors import FormatError, VersionError
from headgate.http.url import parse_url

_VERSIONS: Final = {name: version for version, name in VERSION_BYTES.items()}


class Preamble(Struct, frozen=True):
    """What precedes the section lengths."""

    array_head: int
    version: Version
    primary_url: str | None
    """Also the fallback URL; None in b2, which has it in a section."""
    position: int
    """Where the section lengths begin."""


def preamble_parser() -> Parser[Preamble]:
    """Parse magic, version and, except in b2, the primary URL: the fallback URL of all later errors (steps 1 to 7)."""
    magic = bytes((yield ReadRequest(0, 10)))
    layout = VERSIONS_BY_ARRAY_HEAD.get(magic[0]) if magic else None
    if layout is None or magic[1:] != MAGIC:
        raise FormatError(f"not a bundle: it begins with {magic.hex(' ') or 'nothing'}", step="3.3 step 2", offset=0)
    version_item = bytes((yield ReadRequest(10, 5)))
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
    return Preamble(magic[0], version, url, position)


def _primary_url() -> Parser[tuple[int, str]]:
    """Steps 4 to 6."""
    major, size, position = yield from _head(15, "3.3 step 4", None)
    if major != TEXT:
        raise FormatError("the primary URL is not a text string", step="3.3 step 4", offset=15)
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


def section_table_parser(preamble: Preamble) -> Parser[tuple[Section, ...]]:
    """Parse the section lengths: which sections there are, and where (steps 8 to 20)."""
    fallback = preamble.primary_url
    start = preamble.position
    major, size, position = yield from _head(start, "3.3 step 8", fallback)
    if major != BYTES:
        raise_format_error("the section lengths are not a byte string", "3.3 step 8, 3.5.2 step 2", start, fallback)
    if size >= MAX_SECTION_TABLE_SIZE:
        fault = f"{size} bytes of section lengths, of which fewer than 8192 are taken"
        raise_format_error(fault, "3.3 step 9", start, fallback)
    encoded = yield ReadRequest(position, size)
    if len(encoded) < size:
        raise_format_error(f"the section lengths of {size} bytes are cut", "3.3 step 10", position, fallback)
    try:
        lengths = _read_section_lengths(bytes(encoded))
    except CborError as error:
        raise_format_error(error.reason, f"3.3 step 11, {error.step}", position + error.offset, fallback)
    start = position + size
    major, count, position = yield from _head(start, "3.3 step 12", fallback)
    if major != ARRAY or count != len(lengths):
        fault = f"expected an array of {len(lengths)} sections, got {count} items of major type {major}"
        raise_format_error(fault, "3.3 step 13", start, fallback)
    sections: dict[str, Section] = {}
    for name, length in lengths:
        if name in sections:
            fault = f"the section {name[:80]!r} appears twice"
            raise_format_error(fault, "3.3 step 19.2", preamble.position, fallback)
        sections[name] = Section(name, position, length)
        position += length
    if not lengths or lengths[-1][0] != "responses":
        raise_format_error("the last section is not responses", "3.3 step 20", preamble.position, fallback)
    return tuple(sections.values())


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
    """Parse the type and argument of a CBOR item from the stream (3.5.3), requesting no byte after it."""
    first = bytes((yield ReadRequest(position, 1)))
    rest = bytes((yield ReadRequest(position + 1, size - 1))) if first and (size := head_size(first[0])) > 1 else b""
    try:
        major, argument, length = read_head(first + rest)
    except CborError as error:
        raise_format_error(error.reason, f"{step}, {error.step}", position, fallback_url)
    return major, argument, position + length


def raise_format_error(reason: str, step: str, offset: int, fallback_url: str | None) -> NoReturn:
    """Raise a `FormatError`."""
    raise FormatError(reason, step=step, offset=offset, fallback_url=fallback_url)
