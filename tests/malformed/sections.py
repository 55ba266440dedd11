"""The contents of sections: index (3.3.1), manifest (3.3.2), signatures (3.3.3) and critical (3.3.4)."""

from collections.abc import Iterator
from itertools import product

from tests.malformed.case import Case, accepted, either, refused
from tests.malformed.parts import (
    LOCATIONS,
    MANIFEST,
    PRIMARY,
    RESPONSES,
    Bundle,
    array,
    b2,
    data,
    entry,
    head,
    index,
    pairs,
    text,
    uint,
)

GOOD = Bundle()
MOST = (1 << 64) - 1
FIRST, SECOND = LOCATIONS
SIZE = len(array(*RESPONSES))
NO_URLS = ("", "/x", "x", "//test.example.com/", "https://", "https://a b/", "https://a:99999/", "https://[::1/")
FORBIDDEN_URLS = ("https://a/#", "https://a/#b", "https://u@a/", "https://u:p@a/", "https://:p@a/")


def section_cases() -> Iterator[Case]:
    """Yield them, section by section."""
    yield from _index_items()
    yield from _index_urls()
    yield from _index_locations()
    yield from _variants()
    yield from _later_index()
    yield from _manifest()
    yield from _signatures()
    yield from _critical()


def _indexed(content: bytes) -> Bundle:
    """Return a bundle with this index."""
    return GOOD.having(index=content)


def _index_items() -> Iterator[Case]:
    """3.3.1 step 1: anything but `{* whatwg-url => [variants-value, +location-in-responses]}`."""
    good = GOOD.sections["index"]
    key, value = text(PRIMARY), entry(FIRST)
    for name, content in {
        "no bytes": b"",
        "cut": good[:-1],
        "a byte after it": good + b"\0",
        "another index after it": good + good,
        "out of order": pairs((text(MANIFEST), value), (key, value)),
        "in order of the text, not of the bytes": pairs((text("https://a/long"), value), (text("https://b/"), value)),
        "one key twice": pairs((key, value), (key, value)),
        "a key of bytes": pairs((data(PRIMARY.encode()), value)),
        "a key that is a number": pairs((uint(7), value)),
        "a value that is no array": pairs((key, uint(1))),
        "an empty array": pairs((key, array())),
        "a Variants value alone": pairs((key, array(data(b"")))),
        "no length": pairs((key, array(data(b""), uint(1)))),
        "three numbers": pairs((key, array(data(b""), uint(1), uint(2), uint(3)))),
        "Variants as text": pairs((key, array(text(""), *map(uint, FIRST)))),
        "Variants as a number": pairs((key, array(*map(uint, (0, *FIRST))))),
        "b2's value": pairs((key, array(*map(uint, FIRST)))),
        "a negative offset": pairs((key, array(data(b""), b"\x20", uint(1)))),
        "an offset as a float": pairs((key, array(data(b""), b"\xf9\x3c\x00", uint(1)))),
        "an offset as a big number": pairs((key, array(data(b""), b"\xc2\x41\x01", uint(1)))),
        "a length that is true": pairs((key, array(data(b""), uint(1), b"\xf5"))),
        "2^64-1 entries": head(5, MOST) + good[1:],
        "a billion entries": head(5, 1 << 30) + good[1:],
        "a key of 2^64-1 bytes": head(5, 1) + head(3, MOST) + PRIMARY.encode(),
        "2^64-1 locations": head(5, 1) + key + head(4, MOST) + data(b"") + uint(1) * 64,
        "Variants of 2^64-1 bytes": head(5, 1) + key + b"\x83" + head(2, MOST) + b"x",
        "100,000 nested arrays": b"\x81" * 100_000 + b"\0",
        "100,000 nested arrays for a key": b"\xa1" + b"\x81" * 100_000 + b"\0",
        "100,000 nested maps for a value": b"\xa1" + key + b"\xa1\0" * 100_000 + b"\0",
        "100,000 tags": b"\xc6" * 100_000 + b"\0",
    }.items():
        yield refused(f"index: {name}", _indexed(content), "3.3.1 step 1")
    yield accepted("index: nothing in it", _indexed(pairs()))


def _index_urls() -> Iterator[Case]:
    """3.3.1 steps 4.1, 4.2 and 4.3.2."""
    for url in (*NO_URLS, *FORBIDDEN_URLS):
        bundle = _indexed(index({url: entry(FIRST)}))
        yield refused(f"index step 4.2: {url!r}", bundle, "3.3.1 step 4.2", bundle.at("index") + 1)
    for first, second in (
        (PRIMARY, "https://test.example.com"),
        (PRIMARY, "HTTPS://test.example.com/"),
        (PRIMARY, "https://test.example.com:443/"),
        (PRIMARY, "https://TEST.example.com/"),
        (PRIMARY, "https://test.example.com/./"),
        ("https://a/é", "https://a/%C3%A9"),
        ("https://xn--bcher-kva.example/", "https://bücher.example/"),
    ):
        twice = _indexed(index({first: entry(FIRST), second: entry(SECOND)}))
        yield refused(f"index: {second} is {first}", twice, "3.3.1 step 4")
    for url in ("https://@a/", "urn:uuid:429fcc4e-0696-4bad-b099-ee9175f023ae", "data:,x", "about:blank", "https://a?"):
        yield accepted(f"index: {url} is a URL", _indexed(index({url: entry(FIRST)})))


def _index_locations() -> Iterator[Case]:
    """3.3.1 steps 3.1 and 4.3.1."""
    for offset, length in ((0, SIZE + 1), (1, SIZE), (SIZE + 1, 0), (SIZE, 1), (MOST, 0), (0, MOST), (1, MOST),
                           (MOST, 1), (MOST, MOST), (1 << 63, 1 << 63)):  # fmt: skip
        outside = _indexed(index({PRIMARY: entry((offset, length)), MANIFEST: entry(SECOND)}))
        yield refused(f"index step 3.1: {length} bytes at {offset} of {SIZE}", outside, "3.3.1 step 3")
    for count in (2, 3):
        more = _indexed(index({PRIMARY: entry(*[FIRST] * count)}))
        yield refused(f"index step 4.3.1: {count} locations, no Variants", more, "3.3.1 step 4.3.1")
    for offset, length in ((0, SIZE), (SIZE, 0)):
        inside = _indexed(index({PRIMARY: entry((offset, length)), MANIFEST: entry(SECOND)}))
        step = "3.4 step"
        yield refused(f"index step 3.1: {length} bytes at {offset} of {SIZE} are within", inside, step)


def _variants() -> Iterator[Case]:
    """3.3.1 step 4.4."""

    def negotiated(value: bytes, count: int) -> Bundle:
        return _indexed(index({PRIMARY: entry(*[FIRST] * count, variants=value), MANIFEST: entry(SECOND)}))

    for value in (b" ", b";", b",", b"Accept-Encoding;gzip,", b"Accept-Encoding;;gzip", b"a;b;\xff", b"a;b\0", b"a;b\n",
                  b'a;"b', b"=", b"Accept-Encoding;gzip Accept-Language;en", b"a;(b c)"):  # fmt: skip
        yield refused(f"index step 4.4.1: Variants {value!r}", negotiated(value, 1), "3.3.1 step 4.4.1")
    axes = b"Accept-Encoding;gzip;br, Accept-Language;en;fr;ja"
    for count in (1, 5, 7, 12):
        yield refused(f"index step 4.4.3: {count} locations for 6 keys", negotiated(axes, count), "3.3.1 step 4.4.3")
    yield accepted("index step 4.4: six keys, one response", negotiated(axes, 6))
    hundred = b";".join(b"v%d" % number for number in range(100))
    square = b"Accept;%b, Accept-Language;%b" % (hundred, b";".join(b"l%d" % number for number in range(10)))
    yield accepted("index step 4.4: 1,000 keys are taken", negotiated(square, 1_000))
    many = b"Accept;" + b";".join(b"v%d" % number for number in range(1_001))
    yield refused("index step 4.4: 1,001 keys", negotiated(many, 1_001), "3.3.1 step 4.4")
    beyond = b", ".join(b"axis-%d;%b" % (number, hundred) for number in range(200))
    yield refused("index step 4.4: 100^200 keys, claimed", negotiated(beyond, 1), "3.3.1 step 4.4")
    outside = entry(FIRST, (SIZE, 1), variants=b"Accept-Encoding;gzip;br")
    yield refused("index step 4.4.4: the second is outside", _indexed(index({PRIMARY: outside})), "3.3.1 step 3")


def _later_index() -> Iterator[Case]:
    """b2: index values of two, relative URLs, and the primary section."""
    key, good = text(PRIMARY), b2()
    for name, value in {
        "b1's value": entry(FIRST),
        "one number": array(uint(1)),
        "three numbers": array(uint(1), uint(2), uint(3)),
        "no array": uint(1),
        "text": array(text("1"), text("2")),
    }.items():
        yield refused(f"b2's index: {name}", good.having(index=pairs((key, value))), "3.3.1 step 1")
    location = array(*map(uint, FIRST))
    relative = good.having(index=index({"": location, "script.js": location}))
    yield accepted("b2's index: URLs relative to the primary URL", relative)
    for url in ("script.js#x", "//u@a/", "https://a b/"):
        bundle = good.having(index=index({url: location}))
        yield refused(f"b2's index: {url!r}", bundle, "3.3.1 step 4.2")
    no_base = good.having(primary=None, index=index({"script.js": location}))
    yield accepted("b2's index: a relative URL and nothing it is relative to", no_base)
    for url in ("script.js#x", "//u@a/", "https://a b/"):
        bundle = good.having(primary=None, index=index({url: location}))
        yield refused(f"b2's index: {url!r} and nothing it is relative to", bundle, "3.3.1 step 4.2")
    yield accepted("b2's primary: relative, and to nothing", good.having(primary=text("/")))
    for name, primary in {
        "no bytes": b"",
        "a byte string": data(PRIMARY.encode()),
        "a longer head": b"\x79\0\x19" + PRIMARY.encode(),
        "two items": text(PRIMARY) * 2,
        "no UTF-8": text(b"https://\xff/"),
        "no URL": text("https://a b/"),
    }.items():
        yield refused(f"b2's primary: {name}", good.having(primary=primary), "primary section")
    yield refused(
        "primary is critical, and unknown in b1", GOOD.having(critical=array(text("primary"))), "3.3.4 step 2"
    )
    yield accepted("primary is critical, and known in b2", good.having(critical=array(text("primary"))))


def _manifest() -> Iterator[Case]:
    for name, content in {
        "no bytes": b"",
        "bytes": data(MANIFEST.encode()),
        "an array": array(text(MANIFEST)),
        "a number": uint(1),
        "null": b"\xf6",
        "two items": text(MANIFEST) * 2,
        "a byte after it": text(MANIFEST) + b"\0",
        "cut": text(MANIFEST)[:-1],
        "2^64-1 bytes": head(3, MOST) + MANIFEST.encode(),
        "in chunks": b"\x7f" + text(MANIFEST) + b"\xff",
        "100,000 nested arrays": b"\x81" * 100_000 + b"\0",
    }.items():
        yield refused(f"manifest step 1: {name}", GOOD.having(manifest=content), "3.3.2 step 1")
    for url in (*NO_URLS, *FORBIDDEN_URLS):
        yield refused(f"manifest step 3: {url!r}", GOOD.having(manifest=text(url)), "3.3.2 step 3")


CERTIFICATE = pairs((text("cert"), data(b"c")))
SUBSET = pairs((text("sig"), data(b"s")), (text("signed"), data(b"s")), (text("authority"), uint(0)))


def _signatures() -> Iterator[Case]:
    for name, content in {
        "one of each": array(array(CERTIFICATE), array(SUBSET)),
        "an authority nobody has": array(array(), array(SUBSET)),
        "ocsp and sct": array(array(pairs(*((text(name), data(b"x")) for name in ("sct", "cert", "ocsp")))), array()),
        "any value of another key": array(
            array(pairs((text("a"), b"\xa1\x81\0\xf6"), (text("cert"), data(b"c")))), array()
        ),
        "16 nested arrays where anything may be": array(
            array(pairs((text("a"), b"\x81" * 16 + b"\0"), (text("cert"), data(b"c")))), array()
        ),
    }.items():
        yield accepted(f"signatures: {name}", GOOD.having(signatures=content))
    whole = dict(zip(("sig", "signed", "authority"), (data(b"s"), data(b"s"), uint(0)), strict=True))

    def subset(**changes: bytes | None) -> bytes:
        kept = {name: value for name, value in {**whole, **changes}.items() if value is not None}
        return array(array(CERTIFICATE), array(pairs(*sorted((text(name), value) for name, value in kept.items()))))

    wrong = {
        "no bytes": b"",
        "a map": pairs(),
        "one item": array(array()),
        "three items": array(array(), array(), array()),
        "authorities as a map": array(pairs(), array()),
        "subsets as a map": array(array(), pairs()),
        "an authority as bytes": array(array(data(b"c")), array()),
        "an authority without cert": array(array(pairs()), array()),
        "cert as text": array(array(pairs((text("cert"), text("c")))), array()),
        "an authority's key as bytes": array(array(pairs((data(b"cert"), data(b"c")))), array()),
        "an authority out of order": array(array(pairs((text("cert"), data(b"c")), (text("a"), uint(1)))), array()),
        "cert twice": array(array(pairs(*[(text("cert"), data(b"c"))] * 2)), array()),
        "a subset as an array": array(array(), array(array())),
        "authority -1": subset(authority=b"\x20"),
        "sig as text": subset(sig=text("s")),
        "signed as a map": subset(signed=pairs()),
        "a key that nobody knows": subset(extra=uint(1)),
        "a subset out of order": array(
            array(), array(pairs(*sorted((text(name), value) for name, value in whole.items())[::-1]))
        ),
        "a byte after it": array(array(), array()) + b"\0",
        "2^64-1 authorities": b"\x82" + head(4, MOST) + CERTIFICATE,
        "2^64-1 subsets": b"\x82\x80" + head(4, MOST) + SUBSET,
        "a cert of 2^64-1 bytes": b"\x82\x81\xa1" + text("cert") + head(2, MOST) + b"c",
        "a sig of 2^64-1 bytes": b"\x82\x80\x81\xa3" + text("sig") + head(2, MOST) + b"s",
    }
    wrong |= {f"no {name}": subset(**{name: None}) for name in whole}
    for name, item in {
        "an integer": b"\x18\x17",
        "an array": b"\x9f\xff",
        "a string": b"\x58\x01x",
        "a map": b"\xbf\xff",
        "a key": b"\xa1\x78\x01x\0",
        "a tag": b"\xd8\x06\0",
        "simple values": b"\xf8\x14",
        "nothing at all": b"",
        "a lone break": b"\xff",
    }.items():
        loose = pairs((text("a"), item), (text("cert"), data(b"c")))
        wrong[f"any value, loosely encoded: {name}"] = array(array(loose), array())
    for name, content in wrong.items():
        yield refused(f"signatures step 1: {name}", GOOD.having(signatures=content), "3.3.3 step 1")
    for depth, bomb in product((1000, 100_000), (b"\x81", b"\xa1", b"\xc6", b"\xa1\0")):
        open_ended = array(array(b"\xa1" + text("a") + bomb * depth), array())
        name = f"signatures step 1: {depth} of {bomb.hex()}, open-ended"
        yield refused(name, GOOD.having(signatures=open_ended), "3.3.3 step 1")
    float_of_four = pairs((text("a"), b"\xfa\x3f\x80\0\0"), (text("cert"), data(b"c")))
    yield either(
        "signatures: a float that is longer than it need be",
        GOOD.having(signatures=array(array(float_of_four), array())),
    )


def _critical() -> Iterator[Case]:
    known = ("critical", "index", "manifest", "responses", "signatures")
    yield accepted("critical: all that is known", GOOD.having(critical=array(*map(text, known))))
    yield accepted("critical: nothing", GOOD.having(critical=array()))
    yield accepted("critical: one section twice", GOOD.having(critical=array(text("index"), text("index"))))
    for name, content in {
        "no bytes": b"",
        "a map": pairs(),
        "text": text("index"),
        "a name as bytes": array(data(b"index")),
        "a name as a number": array(uint(1)),
        "a name of null": array(b"\xf6"),
        "a byte after it": array() + b"\0",
        "cut": array(text("index"))[:-1],
        "2^64-1 names": head(4, MOST) + text("index"),
        "a name of 2^64-1 bytes": b"\x81" + head(3, MOST) + b"index",
        "100,000 nested arrays": b"\x81" * 100_000 + b"\0",
    }.items():
        yield refused(f"critical step 1: {name}", GOOD.having(critical=content), "3.3.4 step 1")
    for name in ("", "Index", "variants", "x" * 70_000):
        missing = GOOD.having(critical=array(text("index"), text(name)))
        yield refused(f"critical step 2: {name[:20]!r}", missing, "3.3.4 step 2", missing.at("critical") + 7)
    present = GOOD.having(critical=array(text("unknown")), unknown=b"\0")
    yield refused("critical step 2: unknown, though it is there", present, "3.3.4 step 2")
