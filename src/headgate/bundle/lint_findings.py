"""What lint finds: the types of a report, and the warnings, each a generator over one part of a bundle.

A finding has a code to search for, a message, the step of the document, and the place, in bytes from the first byte of
the bundle.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from headgate.bundle.format.cbor import ARRAY, CborError, read_head
from headgate.bundle.format.metadata import TRAILER_SIZE, Preamble, known_sections
from headgate.bundle.format.sections import OTHER_FORM
from headgate.bundle.model import Location, Section, Version
from headgate.bundle.variants import parse_key, parse_variants, write_key
from headgate.errors import BundleError
from headgate.http.fields import TOKEN
from headgate.http.url import parse_url

MIXUP: Final = "b1-b2-mixup"
"""The code of what belongs to the other of the two formats."""

MAX_PER_CODE: Final = 10_000
"""Findings of one code that are listed; the others are counted, since untrusted input controls how many there are."""

SNIFFED_SIZE: Final = 1_024
"""Bytes in which browsers and plugins look for the type of a payload (5.2)."""
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


class Findings:
    """Collects findings; their offsets are given from the bundle's first byte and reported from the file's."""

    def __init__(self) -> None:
        self.start = 0
        """Bytes before the bundle."""
        self._errors: list[BundleFinding] = []
        self._warnings: list[BundleFinding] = []
        self._counts: Counter[tuple[bool, str]] = Counter()

    def refuse(self, error: BundleError, subject: str = "") -> None:
        """Add the error of a parser; `subject` names the response."""
        code = MIXUP if _is_mixup(error) else _code(error.step, error.kind)
        self.error(BundleFinding(code, f"{subject}{error.reason}", error.step, error.offset))

    def error(self, finding: BundleFinding) -> None:
        """Add an error."""
        self._add(finding, self._errors, is_error=True)

    def warning(self, finding: BundleFinding) -> None:
        """Add a warning."""
        self._add(finding, self._warnings, is_error=False)

    def report(self) -> BundleReport:
        """Return all findings, with the number of those that are not listed."""
        for (is_error, code), count in self._counts.items():
            if count > MAX_PER_CODE:
                more = BundleFinding(
                    code, f"{count - MAX_PER_CODE} more findings of this kind are not listed", None, None
                )
                (self._errors if is_error else self._warnings).append(more)
        return BundleReport(self._errors, self._warnings)

    def _add(self, finding: BundleFinding, findings: list[BundleFinding], *, is_error: bool) -> None:
        self._counts[is_error, finding.code] += 1
        if self._counts[is_error, finding.code] <= MAX_PER_CODE:
            offset = None if finding.offset is None else finding.offset + self.start
            findings.append(BundleFinding(finding.code, finding.message, finding.step, offset))


def _is_mixup(error: BundleError) -> bool:
    # A known version in the other format's layout is the one format error of this step.
    if error.step == "3.3 step 7":
        return error.kind == "format"
    return error.step == "3.3.1 step 1, 3.5.1 step 5" and OTHER_FORM in error.reason


def _code(step: str, kind: str) -> str:
    return next((_CODES[inner] for inner in reversed(step.split(", ")) if inner in _CODES), kind)


_QUOTED: Final = r'"(?:[^"\\]|\\.)*+"'
_media_type = re.compile(rf"{TOKEN}/{TOKEN}(?:[ \t]*+;(?:[ \t]*+{TOKEN}=(?:{TOKEN}|{_QUOTED}))?+)*+[ \t]*+").fullmatch
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


def on_preamble(preamble: Preamble) -> Iterator[BundleFinding]:
    """Check what precedes the sections."""
    if preamble.array_head == 0x84:
        fault = (
            "the array head 0x84 means four items, and six follow: the document's text asks for it, its CDDL does not; "
            "published readers expect 0x86"
        )
        yield BundleFinding("head-0x84", fault, "3.3 step 2", 0)
    if preamble.version == "draft-01":
        fault = "a bundle of a draft must not use version 1; published readers expect b1 or b2"
        yield BundleFinding("version-1", fault, "3.3 step 7", 10)
    if preamble.primary_url is not None and "#" in preamble.primary_url:
        fault = f"the primary URL {preamble.primary_url} has a fragment"
        yield BundleFinding("primary-url-fragment", fault, "3.3 step 6", 15)


def on_sections(version: Version, sections: Sequence[Section]) -> Iterator[BundleFinding]:
    """Check for sections that readers of this version skip."""
    known = known_sections(version)
    for section in sections:
        if section.name == "primary" and version != "b2":
            fault = f"a primary section belongs to b2; readers of {version} skip it"
            yield BundleFinding(MIXUP, fault, "3.3 step 22.1", section.offset)
        elif section.name == "signatures" and version == "b2":
            yield BundleFinding(MIXUP, "b2 has no signatures section", "3.3.3", section.offset)
        elif section.name not in known:
            fault = f"the section {section.name[:80]!r} is unknown; readers skip it"
            yield BundleFinding("unknown-section", fault, "3.3 step 22.1", section.offset)


def on_urls(primary_url: str | None, urls: Collection[str]) -> Iterator[BundleFinding]:
    """Check for URLs that are missing, similar or relative."""
    if primary_url is None:
        yield BundleFinding("primary-url-missing", "there is no primary URL, which clients open first", None, None)
    elif primary_url.partition("#")[0] not in urls:
        yield BundleFinding(
            "primary-url-not-in-bundle", f"the primary URL {primary_url} is not in the bundle", "2.2", None
        )
    similar: dict[str, str] = {}
    for url in urls:
        other = similar.setdefault(_decoded(url), url)
        if other != url:
            fault = f"{url} and {other} differ only in their percent-encoding; many servers treat them as one"
            yield BundleFinding("near-duplicate-url", fault, "3.3.1 step 4.1", None)
        if parse_url(url) is None:
            yield relative_url(url, None)


def relative_url(url: str, offset: int | None) -> BundleFinding:
    """Return the warning about a URL that stays relative."""
    fault = f"the URL {url[:200]!r} is relative, and there is no base URL: readers keep it as it is"
    return BundleFinding("relative-url", fault, "3.3.1 step 4.1", offset)


def on_headers(headers: Mapping[str, str], at: int, length: int, subject: str) -> Iterator[BundleFinding]:
    """Check the headers of a response whose payload of `length` bytes begins at `at`."""
    media_type = headers.get("content-type")
    if media_type is not None and _media_type(media_type) is None:
        fault = f"content-type is not a media type: {media_type[:80]!r}" if media_type else "content-type is empty"
        yield BundleFinding("content-type-invalid", f"{subject}{fault}", "3.4 step 9", at)
    stated = headers.get("content-length")
    if stated is not None and stated != str(length):
        fault = f"{subject}content-length is {stated[:40]!r}, and the payload has {length} bytes"
        yield BundleFinding("content-length", fault, None, at)
    if headers.get("transfer-encoding") or headers.get("connection"):
        yield BundleFinding(
            "hop-by-hop", f"{subject}a header that is valid for one connection only was stored", None, at
        )


def on_variants(
    headers: Mapping[str, str], at: int, subject: str, variants: str, key: str | None
) -> Iterator[BundleFinding]:
    """Check that the headers of a variant agree with its entry in the index."""
    if key is None:
        return
    if "variants" in headers and parse_variants(headers["variants"]) != parse_variants(variants):
        fault = f"{subject}the variants header differs from the index"
        yield BundleFinding("variants", fault, "3.3.1 step 4.4", at)
    if "variant-key" in headers and key not in _keys(headers["variant-key"]):
        fault = f"{subject}the variant-key header is {headers['variant-key'][:80]!r}"
        yield BundleFinding("variant-key", fault, "3.3.1 step 4.4", at)


def on_payload(headers: Mapping[str, str], at: int, payload: bytes, subject: str) -> Iterator[BundleFinding]:
    """Check for a payload whose first bytes browsers or plugins could take for another type (5.2)."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    found = ""
    if media_type != "application/pdf" and b"%PDF-" in payload:
        found = "a PDF"
    elif media_type not in _NEVER_SNIFFED and _MARKUP.match(payload):
        found = "HTML"
    else:
        for magic, types in _MAGIC.items():
            encoded = magic == b"\x1f\x8b" and "content-encoding" in headers
            if payload.startswith(magic) and not media_type.startswith(types) and not encoded:
                found = types[0]
    if found:
        fault = f"{subject}the payload looks like {found}, its content-type is {media_type or 'missing'}"
        yield BundleFinding("sniffable", fault, "5.2", at)


def on_layout(start: bytes, responses: Section, used: Sequence[Location]) -> Iterator[BundleFinding]:
    """Check the responses section, which begins with `start`, and the locations that the index uses."""
    begin = used[0].offset - responses.offset if used else 0
    try:
        major, count, after_head = read_head(start)
    except CborError as error:
        yield BundleFinding("responses-head", f"the head of the responses: {error.reason}", "3.5", responses.offset)
    else:
        begin = after_head
        if major != ARRAY:
            yield BundleFinding("responses-head", "the responses are not an array", "3.1", responses.offset)
        elif count != len(used):
            fault = f"the responses are an array of {count}, and the index has {len(used)} locations"
            yield BundleFinding("responses-count", fault, "3.1", responses.offset)
    position = responses.offset + begin
    end = responses.offset + responses.length
    for location in [*used, Location(end, 0)]:
        if location.offset < position:
            fault = f"the response at byte {location.offset} begins inside another"
            yield BundleFinding("overlap", fault, "3.3.5", location.offset)
        elif location.offset > position:
            fault = f"{location.offset - position} bytes of the responses section belong to no response"
            yield BundleFinding("unreferenced", fault, "3.3.5", position)
        position = max(position, location.offset + location.length)


def on_trailer(trailer: bytes, at: int, size: int) -> Iterator[BundleFinding]:
    """Check the length that follows the last section, and what follows it; `size` counts all bytes that there are."""
    length = at + TRAILER_SIZE
    if len(trailer) < TRAILER_SIZE:
        yield BundleFinding("length-missing", f"the bundle should have {length} bytes, it has {size}", "3.3.6", at)
    elif trailer[0] != 0x48 or int.from_bytes(trailer[1:], "big") != length:
        fault = f"the length at the end is not {length}, so the bundle cannot be read from its end"
        yield BundleFinding("length", fault, "3.3.6", at)
    if size > length:
        yield BundleFinding("trailing-bytes", f"{size - length} bytes follow the bundle", "3.1", length)


def _decoded(url: str) -> str:
    """Decode the percent-encoding of unreserved characters, and write the other in upper case."""

    def decode(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16))
        unreserved = character.isascii() and (character.isalnum() or character in "-._~")
        return character if unreserved else found[0].upper()

    return _PERCENT_ENCODED.sub(decode, url)


def _keys(value: str) -> list[str]:
    """Read the keys of a Variant-Key field."""
    keys = [parse_key(part) for part in value.split(",")]
    return [write_key(values) for values in keys if values]
