"""What is allowed and unwise: the warnings, each a generator over one part of a bundle, offsets from its first byte."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from headgate.bundle.format.cbor import ARRAY, CborError, read_head
from headgate.bundle.format.preamble import Preamble
from headgate.bundle.lint.file import File
from headgate.bundle.lint.finding import MIXUP, Finding
from headgate.bundle.lint.index import Listed, ListedIndex
from headgate.bundle.model import Location, Section, Version
from headgate.bundle.variants import parse_key, parse_variants, write_key

__all__ = [
    "SNIFFED",
    "on_ending",
    "on_headers",
    "on_layout",
    "on_lead",
    "on_payload",
    "on_sections",
    "on_urls",
    "on_variants",
]

SNIFFED: Final = 1_024
"""Bytes in which browsers and plugins look for what a payload might be (5.2)."""

_TRAILER = 9
_NAME: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED: Final = r'"(?:[^"\\]|\\.)*+"'
_media_type = re.compile(rf"{_NAME}/{_NAME}(?:[ \t]*+;(?:[ \t]*+{_NAME}=(?:{_NAME}|{_QUOTED}))?+)*+[ \t]*+").fullmatch
"""RFC 9110, section 8.3.1."""
_PERCENT_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")
_MARKUP = re.compile(rb"\s*<(?:!doctype\s+html|html|head|script|iframe|body|svg|a\s|div|table|!--)", re.IGNORECASE)
_MAGIC: Final[dict[bytes, tuple[str, ...]]] = {
    b"\x89PNG\r\n": ("image/png", "image/apng"),
    b"\xff\xd8\xff": ("image/jpeg",),
    b"GIF8": ("image/gif",),
    b"PK\x03\x04": ("application/zip", "application/vnd.", "application/java-archive", "application/epub+zip"),
    b"\x1f\x8b": ("application/gzip", "application/x-gzip"),
    b"\0asm": ("application/wasm",),
}
_NEVER_SNIFFED = ("text/html", "application/xhtml+xml", "image/svg+xml", "text/xml", "application/xml")


def on_lead(lead: Preamble) -> Iterator[Finding]:
    """Say what is odd before the sections."""
    if lead.array_head == 0x84:
        yield Finding(
            "head-0x84",
            "the array head 0x84 says four items where six follow, as the document's text has it and its CDDL has not; "
            "published readers want 0x86",
            "3.3 step 2",
            0,
        )
    if lead.version == "draft-01":
        fault = "drafts must not call themselves version 1; published readers want b1 or b2"
        yield Finding("version-1", fault, "3.3 step 7", 10)
    if lead.primary_url is not None and "#" in lead.primary_url:
        yield Finding("primary-url-fragment", f"the primary URL {lead.primary_url} has a fragment", "3.3 step 6", 15)


def on_sections(version: Version, sections: Sequence[Section]) -> Iterator[Finding]:
    """Say which sections a reader of this version steps over."""
    known = {"index", "manifest", "critical", "signatures", "responses"} | ({"primary"} if version == "b2" else set())
    for section in sections:
        if section.name == "primary" and version != "b2":
            fault = f"a primary section belongs to b2; in {version} it is stepped over"
            yield Finding(MIXUP, fault, "3.3 step 22.1", section.offset)
        elif section.name == "signatures" and version == "b2":
            yield Finding(MIXUP, "b2 has no signatures section", "3.3.3", section.offset)
        elif section.name not in known:
            fault = f"the section {section.name[:80]!r} is unknown, and stepped over"
            yield Finding("unknown-section", fault, "3.3 step 22.1", section.offset)


def on_urls(primary_url: str | None, index: ListedIndex, *, has_none: bool) -> Iterator[Finding]:
    """Say which URLs will be missed, or taken for each other; `has_none`: nothing says what the primary URL is."""
    if has_none:
        yield Finding("primary-url-missing", "there is no primary URL, so nothing to open first", None, None)
    elif primary_url is not None and index.is_whole and primary_url.partition("#")[0] not in index.urls:
        yield Finding("primary-url-not-in-bundle", f"the primary URL {primary_url} is not in the bundle", "2.2", None)
    alike: dict[str, str] = {}
    for url in index.urls:
        other = alike.setdefault(_alike(url), url)
        if other != url:
            fault = f"{url} and {other} differ only in how they are percent-encoded; many servers serve one resource"
            yield Finding("near-duplicate-url", fault, "3.3.1 step 4.1", None)


def on_headers(headers: Mapping[str, str], at: int, payload: Location | None, subject: str) -> Iterator[Finding]:
    """Say what is odd about a response's headers, which end at `at`."""
    media_type = headers.get("content-type")
    if media_type is not None and _media_type(media_type) is None:
        said = f"{media_type[:80]!r}, which is no media type" if media_type else "empty"
        yield Finding("content-type-invalid", f"{subject}content-type is {said}", "3.4 step 9", at)
    length = headers.get("content-length")
    if length is not None and payload is not None and length != str(payload.length):
        fault = f"{subject}content-length says {length[:40]!r}, and {payload.length} bytes follow"
        yield Finding("content-length", fault, None, at)
    if headers.get("transfer-encoding") or headers.get("connection"):
        yield Finding("hop-by-hop", f"{subject}a field for one connection was stored", None, at)


def on_variants(headers: Mapping[str, str], at: int, subject: str, listed: Listed) -> Iterator[Finding]:
    """Say where a response and its entry in the index do not agree on what it varies by."""
    if listed.key is None:
        return
    if "variants" in headers and parse_variants(headers["variants"]) != parse_variants(listed.variants or ""):
        yield Finding("variants", f"{subject}the variants header is not what the index says", "3.3.1 step 4.4", at)
    if "variant-key" in headers and listed.key not in _keys(headers["variant-key"]):
        fault = f"{subject}the variant-key header is {headers['variant-key'][:80]!r}"
        yield Finding("variant-key", fault, "3.3.1 step 4.4", at)


def on_payload(headers: Mapping[str, str], at: int, payload: bytes, subject: str) -> Iterator[Finding]:
    """Say what a browser or plugin could take a payload for, if it looked at its first bytes (5.2)."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    looks = ""
    if media_type != "application/pdf" and b"%PDF-" in payload:
        looks = "a PDF"
    elif media_type not in _NEVER_SNIFFED and _MARKUP.match(payload):
        looks = "HTML"
    else:
        for magic, types in _MAGIC.items():
            encoded = magic == b"\x1f\x8b" and "content-encoding" in headers
            if payload.startswith(magic) and not media_type.startswith(types) and not encoded:
                looks = types[0]
    if looks:
        fault = f"{subject}the payload looks like {looks}, and content-type says {media_type or 'nothing'}"
        yield Finding("sniffable", fault, "5.2", at)


def on_layout(file: File, responses: Section, used: Sequence[Location]) -> Iterator[Finding]:
    """Say what is odd about the responses section, of which all that the index has was `used`."""
    begin = used[0].offset - responses.offset if used else 0
    try:
        major, count, after_head = read_head(file.read(responses.offset, _TRAILER))
    except CborError as error:
        yield Finding("responses-head", f"the responses begin with no head: {error.reason}", "3.5", responses.offset)
    else:
        begin = after_head
        if major != ARRAY:
            yield Finding("responses-head", "the responses are no array", "3.1", responses.offset)
        elif count != len(used):
            fault = f"the responses are an array of {count}, and the index has {len(used)} locations"
            yield Finding("responses-count", fault, "3.1", responses.offset)
    yield from _gaps(responses, used, begin)


def _gaps(responses: Section, used: Sequence[Location], begin: int) -> Iterator[Finding]:
    """Say where responses overlap, and where bytes are in none."""
    position = responses.offset + begin
    end = responses.offset + responses.length
    for location in [*used, Location(end, 0)]:
        if location.offset < position:
            fault = f"the response at byte {location.offset} begins inside another"
            yield Finding("overlap", fault, "3.3.5", location.offset)
        elif location.offset > position:
            fault = f"{location.offset - position} bytes among the responses are in none of them"
            yield Finding("unreferenced", fault, "3.3.5", position)
        position = max(position, location.offset + location.length)


def on_ending(file: File, at: int) -> Iterator[Finding]:
    """Say what is odd about the length that stands behind the last section, and about what follows."""
    trailer, size, length = file.read(at, _TRAILER), file.size, at + _TRAILER
    if len(trailer) < _TRAILER:
        yield Finding("length-missing", f"the bundle should end at byte {length}, and has {size} bytes", "3.3.6", at)
    elif trailer[0] != 0x48 or int.from_bytes(trailer[1:], "big") != length:
        fault = f"the length at the end is not the {length} bytes of the bundle, so it cannot be read from its end"
        yield Finding("length", fault, "3.3.6", at)
    if size > length:
        yield Finding("trailing-bytes", f"{size - length} bytes follow the bundle", "3.1", length)


def _alike(url: str) -> str:
    """Undo the percent-encoding that need not be, and write the rest in one case."""

    def plainer(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16))
        unreserved = character.isascii() and (character.isalnum() or character in "-._~")
        return character if unreserved else found[0].upper()

    return _PERCENT_ENCODED.sub(plainer, url)


def _keys(value: str) -> list[str]:
    """Read a Variant-Key field: keys with commas between."""
    keys = [parse_key(part) for part in value.split(",")]
    return [write_key(values) for values in keys if values]
