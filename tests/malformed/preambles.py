"""What precedes and follows the sections: 3.3 steps 1 to 24 and 3.3.6, for all three versions."""

from collections.abc import Iterator
from dataclasses import replace

from tests.malformed.case import Case, accepted, either, refused
from tests.malformed.parts import PRIMARY, Bundle, array, b2, data, draft01, head, text, trailer, uint

GOOD = Bundle()
LENGTHS = GOOD.at("lengths head")
MOST = (1 << 64) - 1


def preamble_cases() -> Iterator[Case]:
    """Yield them, in the order of the steps."""
    yield from _good()
    yield from _magic_and_version()
    yield from _primary_url()
    yield from _section_lengths()
    yield from _sections()
    yield from _from_the_end()


def _good() -> Iterator[Case]:
    yield accepted("good b1", GOOD)
    yield accepted("good draft-01", draft01())
    yield accepted("good b2", b2())
    yield accepted("good b1 under 0x84", replace(GOOD, array=b"\x84"))
    yield accepted("good draft-01 under 0x86", replace(draft01(), array=b"\x86"))
    yield accepted("step 19.3: an unknown section before the index", _before_index(b"\xff not CBOR"))
    yield accepted("step 22.1: an unknown section after the index", GOOD.having(unknown=b"\xff"))
    yield accepted("step 22.1: an unknown section of no bytes", GOOD.having(unknown=b""))
    yield accepted("step 22.1: a section named with nothing", GOOD.having(**{"": b"\xa0"}))
    yield accepted("b2 needs no primary section", b2().having(primary=None))
    yield accepted("a primary URL with a fragment", replace(GOOD, url=text(PRIMARY + "#top")))
    yield either("the trailing length is not the length", replace(GOOD, trailer=trailer(0)))
    yield either("no trailing length", replace(GOOD, trailer=b""))


def _before_index(content: bytes) -> Bundle:
    return GOOD.arranged(("unknown", content), *GOOD.sections.items())


def _magic_and_version() -> Iterator[Case]:
    whole = GOOD.written()
    for length in (0, 1, 2, 9):
        yield Case(f"step 2: the first {length} bytes", whole[:length], "format", "3.3 step 2", 0)
    for name, first in {
        "three items": b"\x83",
        "seven items": b"\x87",
        "a longer head": b"\x98\x06",
        "an indefinite array": b"\x9f",
        "a map": b"\xa6",
        "a byte order mark": b"\xef\xbb\xbf\x86",
        "a tag": b"\xd9\xd9\xf7\x86",
    }.items():
        yield refused(f"step 2: {name}", replace(GOOD, array=first), "3.3 step 2", 0)
    for name, magic in {
        "another magic": data("🌐📧".encode()),
        "magic as text": text("🌐📦"),
        "magic with a longer head": b"\x58\x08" + "🌐📦".encode(),
        "magic of seven bytes": data("🌐📦".encode()[:7]),
        "the integrity block's magic": data("🖋📧".encode()),
    }.items():
        yield refused(f"step 2: {name}", replace(GOOD, magic=magic), "3.3 step 2", 0)
    for length in (10, 11, 14):
        yield Case(f"step 3: the first {length} bytes", whole[:length], "format", "3.3 step 3", 10)
    for version in (b"\x44b3\0\0", b"\x44B1\0\0", b"\x442\0\0\0", b"\x44b1\0 ", b"\x44\0\0\0\0", b"\x64b1\0\0"):
        unknown = replace(GOOD, version=version)
        yield refused(f"step 7: version {version.hex()}", unknown, "3.3 step 7", 10, expected="version")
    yield refused("step 4 before step 7", replace(GOOD, version=b"\x44b3\0\0", url=data(b"x")), "3.3 step 4", 15)
    for bundle, first in ((GOOD, b"\x85"), (draft01(), b"\x85"), (b2(), b"\x86"), (b2(), b"\x84")):
        name = f"version {bundle.version[1:3].decode()} under 0x{first.hex()}"
        yield refused(name, replace(bundle, array=first), "", fallback_url=None)


def _primary_url() -> Iterator[Case]:
    whole = GOOD.written()
    yield Case("step 4: nothing after the version", whole[:15], "format", "3.3 step 4", 15)
    for width in (1, 2, 4, 8):
        content = whole[:15] + head(3, (1 << 8 * width) - 1, width)[:-1]
        yield Case(f"step 4: a head of {width + 1} bytes that is cut", content, "format", "3.3 step 4", 15)
    yield Case("step 5: the primary URL is cut", whole[:30], "format", "3.3 step 5")
    yield Case("step 5: one byte is missing", whole[: LENGTHS - 1], "format", "3.3 step 5")
    for url in ("", "/", "test.example.com", "//test.example.com/", "https://", "https://a b/", "https://a:65536/",
                "https://[::1/", "https://1.2.3.256/", "https://a%00b/", "http:"):  # fmt: skip
        yield refused(f"step 6: {url!r}", replace(GOOD, url=text(url)), "3.3 step 6")


def _section_lengths() -> Iterator[Case]:
    whole = GOOD.written()
    lengths = GOOD.section_lengths()
    yield Case("step 8: nothing after the URL", whole[:LENGTHS], "format", "3.3 step 8", LENGTHS, PRIMARY)
    yield _of_size(8191)
    for size in (8192, 8193):
        yield refused(f"step 9: {size} bytes of section lengths", _sized(size), "3.3 step 9", LENGTHS)
    for claimed in (8192, 1 << 32, 1 << 63, MOST):
        huge = replace(GOOD, lengths_head=head(2, claimed))
        yield refused(f"step 9: section lengths of {claimed} bytes, claimed", huge, "3.3 step 9", LENGTHS)
    yield refused("step 10: 8191 bytes, claimed", replace(GOOD, lengths_head=head(2, 8191)), "3.3 step 10")
    cut = whole[: GOOD.at("sections") - 1]
    yield Case("step 10: one byte is missing", cut, "format", "3.3 step 10", fallback_url=PRIMARY)
    for name, content, at in (
        ("no bytes", b"", 0),
        ("a map", b"\xa3" + lengths[1:], 0),
        ("an odd number of items", array(text("responses")), 0),
        ("one item more than there is", head(4, 8) + lengths[1:], None),
        ("a billion items", head(4, 1 << 30) + lengths[1:], None),
        ("2^64-1 items", head(4, MOST) + lengths[1:], None),
        ("a byte after the item", lengths + b"\0", len(lengths)),
        ("two items", lengths + lengths, len(lengths)),
        ("a negative length", array(text("responses"), b"\x20"), 11),
        ("a length as a float", array(text("responses"), b"\xf9\x3c\x00"), 11),
        ("a length as a string", array(text("responses"), text("1")), 11),
        ("a tagged length", array(text("responses"), b"\xc0\x01"), 11),
        ("a length of null", array(text("responses"), b"\xf6"), 11),
        ("length before name", array(uint(1), text("responses")), 1),
        ("a name of 2^64-1 bytes", b"\x82" + head(3, MOST) + b"responses", None),
        ("8,000 nested arrays", b"\x81" * 8000 + b"\0", None),
    ):
        broken = replace(GOOD, lengths=content)
        offset = None if at is None else broken.at("lengths") + at
        yield refused(f"step 11: {name}", broken, "3.3 step 11", offset)


def _sized(size: int) -> Bundle:
    """Return a bundle with `size` bytes of section lengths, most of them the name of an unknown section."""
    bundle = _before_index(b"\0")
    missing = size - len(bundle.section_lengths()) - 2
    return GOOD.arranged(("unknown" + "x" * missing, b"\0"), *GOOD.sections.items())


def _of_size(size: int) -> Case:
    bundle = _sized(size)
    assert len(bundle.section_lengths()) == size
    return accepted(f"step 9: {size} bytes of section lengths are taken", bundle)


def _sections() -> Iterator[Case]:
    whole, at = GOOD.written(), GOOD.at("sections")
    yield Case("step 12: nothing after the lengths", whole[:at], "format", "3.3 step 12", at, PRIMARY)
    for name, wrong in {"one less": b"\x82", "one more": b"\x84", "a map": b"\xa3", "none": b"\x80"}.items():
        yield refused(f"step 13: {name}", replace(GOOD, sections_head=wrong), "3.3 step 13", at)
    for name in ("index", "manifest", "unknown"):
        double = _named((name, b"\xa0"), (name, b"\xa0"), *GOOD.sections.items())
        yield refused(f"step 19.2: {name} twice", double, "3.3 step 19.2")
    items = GOOD.sections
    double = _named(*items.items(), ("responses", items["responses"]))
    yield refused("step 19.2: responses twice", double, "3.3 step 19.2")
    yield refused("step 20: no section at all", replace(GOOD, sections={}), "3.3 step 20")
    yield refused("step 20: no responses", GOOD.having(responses=None), "3.3 step 20")
    last = GOOD.arranged(("responses", items["responses"]), ("index", items["index"]), ("manifest", items["manifest"]))
    yield refused("step 20: responses before the index", last, "3.3 step 20")
    unknown = _named(*items.items(), ("later", b"\0"))
    yield refused("step 20: an unknown section after responses", unknown, "3.3 step 20")
    yield refused("step 20: Responses in another case", _named(("Responses", b"\x80")), "3.3 step 20")
    for section in ("index", "manifest"):
        start = GOOD.at(section)
        for cut in (start, start + 1, start + len(items[section]) - 1):
            name = f"step 22.4, 22.5: {section} is cut at byte {cut}"
            yield Case(name, whole[:cut], "format", "3.3 step 22", offset=start, fallback_url=PRIMARY)
    for length in (1 << 20, 1 << 32, 1 << 63, MOST):
        claims = replace(GOOD, lengths=_lengths(index=length))
        yield refused(f"step 22.5: an index of {length} bytes, claimed", claims, "3.3 step 22")
        claims = replace(_before_index(b"\0"), lengths=_lengths(unknown=length, index=len(items["index"])))
        yield refused(f"step 22.4: behind an unknown section of {length} bytes", claims, "3.3 step 22")
        claims = replace(GOOD, lengths=_lengths(responses=length))
        yield accepted(f"step 22.2: responses of {length} bytes, claimed", claims)
    yield refused("step 24: no index", GOOD.having(index=None), "3.3 step 24")
    yield refused("step 24: no manifest", GOOD.having(manifest=None), "3.3 step 24", compat="ok")
    no_manifest = draft01().having(manifest=None)
    yield refused("step 24: no manifest in draft-01", no_manifest, "3.3 step 24", compat="ok")
    yield refused("step 24: no index in b2", b2().having(index=None), "3.3 step 24")


def _named(*sections: tuple[str, bytes]) -> Bundle:
    """Return a bundle with these sections, whose names may repeat."""
    items = [item for name, content in sections for item in (text(name), uint(len(content)))]
    kept = {f"{place}": content for place, (_, content) in enumerate(sections)}
    return replace(GOOD, sections=kept, lengths=array(*items))


def _lengths(**claimed: int) -> bytes:
    """Write section lengths, some of which are wrong."""
    known = {name: len(content) for name, content in GOOD.sections.items()}
    order = sorted({**known, **claimed}, key=lambda name: name != "unknown")
    return array(*(item for name in order for item in (text(name), uint({**known, **claimed}[name]))))


def _from_the_end() -> Iterator[Case]:
    whole = GOOD.written()
    size = len(whole)
    for name, before in {"nothing": b"", "a byte": b"M", "a program": b"MZ" + bytes(5000)}.items():
        yield Case(f"from the end: behind {name}", before + whole, "ok", from_end=True)
    for name, content, step, offset in (
        ("no byte", b"", "3.3.6 step 1", 0),
        ("eight bytes", whole[-8:], "3.3.6 step 1", 0),
        ("another head", whole[:-9] + b"\x47" + whole[-8:], "3.3.6 step 1", size - 9),
        ("a text string", whole[:-9] + b"\x68" + whole[-8:], "3.3.6 step 1", size - 9),
        ("a cut file", whole[:-1], "3.3.6 step 1", size - 10),
        ("one byte too long", whole[:-9] + trailer(size + 1), "3.3.6 step 3", size - 8),
        ("2^64-1 bytes long", whole[:-9] + trailer(MOST), "3.3.6 step 3", size - 8),
        ("2^63 bytes long", whole[:-9] + trailer(1 << 63), "3.3.6 step 3", size - 8),
        ("no byte long", whole[:-9] + trailer(0), "3.3 step 2", size),
        ("nine bytes long", whole[:-9] + trailer(9), "3.3 step 2", size - 9),
        ("one byte too short", whole[:-9] + trailer(size - 1), "3.3 step 2", 1),
    ):
        yield Case(f"from the end: {name}", content, "format", step, offset, from_end=True)
    longer = b"x" + whole[:-9] + trailer(size + 1)
    yield Case("from the end: a byte of what is before it", longer, "format", "3.3 step 2", 0, from_end=True)
