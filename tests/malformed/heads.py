"""Every CBOR head in a bundle, with every way in which a head or a text there can be malformed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.malformed.case import Case, refused
from tests.malformed.parts import (
    HEADERS,
    LOCATIONS,
    MANIFEST,
    PRIMARY,
    RESPONSES,
    Bundle,
    array,
    b2,
    data,
    draft01,
    entry,
    head,
    text,
    uint,
)

GOOD = Bundle()
UINT, BYTES, TEXT, ARRAY, MAP = 0, 2, 3, 4, 5
NO_UTF8 = {
    "a lone continuation": b"\x80",
    "an overlong slash": b"\xc0\xaf",
    "an overlong NUL": b"\xe0\x80\x80",
    "a surrogate": b"\xed\xa0\x80",
    "a pair of surrogates": b"\xed\xa0\xbd\xed\xb8\x80",
    "a cut sequence": b"\xe2\x82",
    "above U+10FFFF": b"\xf4\x90\x80\x80",
    "0xFF": b"\xff",
}


@dataclass(frozen=True)
class HeadPlace:
    """The place of a head in a valid bundle: what precedes and follows it in its section or response."""

    name: str
    put: Callable[[bytes], tuple[Bundle, int]]
    """Returns the bundle with other bytes for that section or response, and where these begin."""
    step: str
    """The step that a malformed head fails."""
    before: bytes
    major: int
    content: bytes
    """The bytes of the string; empty for other types, which have an `argument`."""
    after: bytes = b""
    argument: int | None = None
    wrong_kind: str = ""
    """The step that another major type fails, where that differs."""

    def number(self) -> int:
        """Return the argument of its head."""
        return len(self.content) if self.argument is None else self.argument

    def having(self, other: bytes, content: bytes | None = None) -> tuple[Bundle, int]:
        """Return the bundle with another head, and perhaps other content; and the head's offset."""
        content = self.content if content is None else content
        bundle, start = self.put(self.before + other + content + self.after)
        return bundle, start + len(self.before)


def head_cases() -> Iterator[Case]:
    """Yield the cases of every place."""
    for place in (*_preamble_places(), *_index_places(), *_section_places(), *_signature_places(), *_response_places()):
        yield from _heads(place)
        if place.major == TEXT:
            yield from _texts(place)


def _heads(place: HeadPlace) -> Iterator[Case]:
    major, number = place.major, place.number()
    shortest = len(head(major, number)) - 1
    wrong = {f"{width} bytes of argument": head(major, number, width) for width in (1, 2, 4, 8) if width > shortest}
    wrong |= {f"0x{major << 5 | low:02x}": bytes([major << 5 | low]) for low in (28, 29, 30, 31)}
    wrong["a break"] = b"\xff"
    other = {f"major type {kind}": head(kind, number) for kind in range(7) if kind != major}
    other |= {"a float": b"\xf9\x3c\0", "true": b"\xf5"}
    for step, heads in ((place.step, wrong), (place.wrong_kind or place.step, other)):
        for name, content in heads.items():
            yield refused(f"{place.name}: {name}", *_with_step(place.having(content), step))


def _texts(place: HeadPlace) -> Iterator[Case]:
    for name, content in NO_UTF8.items():
        bundle, offset = place.having(head(TEXT, len(content)), content)
        if place.step == "3.3 step 4":
            # The document has separate steps for the bytes of the primary URL.
            yield refused(f"{place.name}: {name}", bundle, "3.3 step 6")
        else:
            yield refused(f"{place.name}: {name}", bundle, place.step, offset)


def _with_step(placed: tuple[Bundle, int], step: str) -> tuple[Bundle, str, int]:
    bundle, offset = placed
    return bundle, step, offset


def _part(bundle: Bundle, field: str, piece: str) -> Callable[[bytes], tuple[Bundle, int]]:
    def put(content: bytes) -> tuple[Bundle, int]:
        changes: dict[str, Any] = {field: content}
        changed = replace(bundle, **changes)
        return changed, changed.at(piece)

    return put


def _section(name: str, bundle: Bundle = GOOD) -> Callable[[bytes], tuple[Bundle, int]]:
    def put(content: bytes) -> tuple[Bundle, int]:
        changed = bundle.having(**{name: content})
        return changed, changed.at(name)

    return put


def _answer(content: bytes) -> tuple[Bundle, int]:
    bundle = GOOD.answering(content)
    return bundle, bundle.at("responses") + 1 + len(RESPONSES[1])


def _headers(content: bytes) -> tuple[Bundle, int]:
    lead = b"\x82" + head(BYTES, len(content))
    bundle, start = _answer(lead + content + data(b"hello"))
    return bundle, start + len(lead)


def _preamble_places() -> Iterator[HeadPlace]:
    for name, bundle in {"b1": GOOD, "draft-01": draft01()}.items():
        yield HeadPlace(
            f"primary URL of {name}", _part(bundle, "url", "url"), "3.3 step 4", b"", TEXT, PRIMARY.encode()
        )
    for name, bundle in {"b1": GOOD, "b2": b2()}.items():
        put, size = _part(bundle, "lengths_head", "lengths head"), len(bundle.section_lengths())
        yield HeadPlace(f"section lengths of {name}", put, "3.3 step 8", b"", BYTES, b"", argument=size)
        put = _part(bundle, "sections_head", "sections")
        place = HeadPlace(
            f"sections of {name}", put, "3.3 step 12", b"", ARRAY, b"", argument=3, wrong_kind="3.3 step 13"
        )
        yield place
    lengths = GOOD.section_lengths()
    put, step = _part(GOOD, "lengths", "lengths"), "3.3 step 11"
    yield HeadPlace("list of section lengths", put, step, b"", ARRAY, b"", lengths[1:], argument=6)
    yield HeadPlace("name of a section", put, step, lengths[:1], TEXT, b"index", lengths[7:])
    last = uint(len(GOOD.sections["responses"]))
    number = len(GOOD.sections["responses"])
    yield HeadPlace("length of a section", put, step, lengths[: -len(last)], UINT, b"", argument=number)


def _index_places() -> Iterator[HeadPlace]:
    put, step, key, url = _section("index"), "3.3.1 step 1", text(PRIMARY), PRIMARY.encode()
    first, second = LOCATIONS[0]
    rest = text(MANIFEST) + entry(LOCATIONS[1])
    value = entry(LOCATIONS[0])
    yield HeadPlace("index", put, step, b"", MAP, b"", key + value + rest, argument=2)
    yield HeadPlace("URL in the index", put, step, b"\xa2", TEXT, url, value + rest)
    yield HeadPlace("index value", put, step, b"\xa2" + key, ARRAY, b"", value[1:] + rest, argument=3)
    yield HeadPlace("Variants value", put, step, b"\xa2" + key + b"\x83", BYTES, b"", value[2:] + rest)
    yield HeadPlace("offset", put, step, b"\xa2" + key + b"\x83\x40", UINT, b"", uint(second) + rest, argument=first)
    before = b"\xa2" + key + b"\x83\x40" + uint(first)
    yield HeadPlace("length", put, step, before, UINT, b"", rest, argument=second)
    put = _section("index", b2())
    yield HeadPlace("b2's index value", put, step, b"\xa1" + key, ARRAY, b"", uint(first) + uint(second), argument=2)
    yield HeadPlace("b2's offset", put, step, b"\xa1" + key + b"\x82", UINT, b"", uint(second), argument=first)
    yield HeadPlace("b2's length", put, step, b"\xa1" + key + b"\x82" + uint(first), UINT, b"", argument=second)


def _section_places() -> Iterator[HeadPlace]:
    url = MANIFEST.encode()
    yield HeadPlace("manifest URL", _section("manifest"), "3.3.2 step 1", b"", TEXT, url)
    yield HeadPlace("b2's primary URL", _section("primary", b2()), "primary section", b"", TEXT, PRIMARY.encode())
    put, step = _section("critical"), "3.3.4 step 1"
    yield HeadPlace("critical list", put, step, b"", ARRAY, b"", text("index"), argument=1)
    yield HeadPlace("critical name", put, step, b"\x81", TEXT, b"index")


def _signature_places() -> Iterator[HeadPlace]:
    put, step = _section("signatures"), "3.3.3 step 1"
    cert, authority = text("cert") + data(b"c"), text("authority") + uint(0)
    signature = text("sig") + data(b"s") + text("signed") + data(b"s")
    subsets = array(b"\xa3" + signature + authority)
    yield HeadPlace("signatures", put, step, b"", ARRAY, b"", b"\x80\x80", argument=2)
    yield HeadPlace("authorities", put, step, b"\x82", ARRAY, b"", b"\xa1" + cert + subsets, argument=1)
    yield HeadPlace("authority", put, step, b"\x82\x81", MAP, b"", cert + subsets, argument=1)
    yield HeadPlace("authority's key", put, step, b"\x82\x81\xa1", TEXT, b"cert", data(b"c") + subsets)
    yield HeadPlace("certificate", put, step, b"\x82\x81\xa1" + text("cert"), BYTES, b"c", subsets)
    yield HeadPlace("vouched subsets", put, step, b"\x82\x80", ARRAY, b"", subsets[1:], argument=1)
    yield HeadPlace("vouched subset", put, step, b"\x82\x80\x81", MAP, b"", subsets[2:], argument=3)
    before = b"\x82\x80\x81\xa3"
    yield HeadPlace("vouched subset's key", put, step, before, TEXT, b"sig", data(b"s") + signature[6:] + authority)
    yield HeadPlace("sig", put, step, before + text("sig"), BYTES, b"s", signature[6:] + authority)
    yield HeadPlace("signed", put, step, before + signature[:-2], BYTES, b"s", authority)
    yield HeadPlace("index of an authority", put, step, before + signature + text("authority"), UINT, b"", argument=0)


def _response_places() -> Iterator[HeadPlace]:
    payload = data(b"hello")
    yield HeadPlace("head of the headers", _answer, "3.4 step 3", b"\x82", BYTES, HEADERS, payload)
    before = b"\x82" + data(HEADERS)
    yield HeadPlace("head of the payload", _answer, "3.4 step 10", before, BYTES, b"hello")
    status, kind = data(b":status") + data(b"200"), data(b"content-type") + data(b"text/plain")
    step = "3.4 step 5"
    yield HeadPlace("header map", _headers, step, b"", MAP, b"", status + kind, argument=2)
    yield HeadPlace("header name", _headers, step, b"\xa2" + status, BYTES, b"content-type", data(b"text/plain"))
    before = b"\xa2" + status + data(b"content-type")
    yield HeadPlace("header value", _headers, step, before, BYTES, b"text/plain")
