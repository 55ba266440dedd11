"""The short ways of reading a bundle take nothing that the document's own way does not, and give the same."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle.format import header_decoder, index
from headgate.bundle.format import response as response_format
from headgate.bundle.format.cbor import CborError, encode
from headgate.bundle.format.incremental import drive, reads_from
from headgate.bundle.format.response import FIRST_READ_SIZE, read_common_response
from headgate.bundle.format.section_url import SectionError
from headgate.bundle.model import Location, Section
from headgate.bundle.reading.header_cache import ResponseHeadCache
from tests.malformed.parts import array, data, entry, text, uint

NAMES = st.one_of(
    st.sampled_from([b":status", b"etag", b"content-type", b"vary", b"x-own", b"Etag", b":path", b"", b"a b", b"link"]),
    st.binary(max_size=30),
)
VALUES = st.one_of(
    st.sampled_from([b"200", b"304", b"2000", b"text/html", b"", b" x", b"x ", b"a\nb", b"x" * 24, b"x" * 300]),
    st.binary(max_size=40),
)
MAPS = st.dictionaries(NAMES, VALUES, max_size=8).map(encode)


@st.composite
def spoiled(draw, sources):
    """Give bytes, now and then with one of them changed, taken out or put in."""
    source = draw(sources)
    if source and draw(st.integers(0, 2)):
        at = draw(st.integers(0, len(source) - 1))
        byte = bytes([draw(st.integers(0, 255))])
        source = draw(st.sampled_from([source[:at] + byte + source[at + 1 :], source[:at] + source[at + 1 :],
                                       source[:at] + byte + source[at:], source[:at]]))  # fmt: skip
    return source


@given(spoiled(MAPS))
def test_common_headers_read_alike(source):
    common = header_decoder.decode_common_headers(source)
    if common is not None:
        headers, pseudos = header_decoder._read_any(source)
        assert (headers, {b":status": common[1]}) == (common[0], pseudos)


@given(MAPS, st.binary(max_size=300), st.sampled_from([0, 0, 0, -1, 1]), st.data())
def test_usual_responses_read_alike(headers, payload, lie, more):
    source = more.draw(spoiled(st.just(b"\x82" + data(headers) + data(payload))))
    location = Location(0, max(len(source) + lie, 0))
    usual = read_common_response(source[:FIRST_READ_SIZE], location)
    if usual is None:
        return
    assert usual == long_way(location, source)


@st.composite
def siblings(draw):
    """Give header maps that look alike: the same names, their values as long as each other's, none of them refused."""
    more = st.sampled_from([b"etag", b"a%s", b"vary", b"x-own", b"x" * 30])
    lengths = {
        name: draw(st.sampled_from([1, 2, 3, 24, 260])) for name in draw(st.lists(more, max_size=3, unique=True))
    }
    values = {name: value_of(length) for name, length in lengths.items()}
    values |= {b"content-type": value_of(9), b":status": st.sampled_from([b"200", b"200", b"200", b"404"])}
    return draw(st.lists(st.fixed_dictionaries(values), min_size=3, max_size=6))


def value_of(length):
    return st.sampled_from([b"a" * length, b"%" * length, (b"b c\xe9" * length)[: length - 1] + b"s"])


def response(headers):
    return b"\x82" + data(encode(headers)) + data(b"p" * 300)


NASTY = [b" ", b"\t", b"\r", b"\n", b"\0", b"\xa0", b"A", b"X", b"y"]


@st.composite
def spoiled_alike(draw, maps):
    """Give one more response of that look, with a byte in a value or between them changed to a telling one."""
    headers = dict(draw(st.sampled_from(maps)))
    name, byte = draw(st.sampled_from(sorted(headers))), draw(st.sampled_from(NASTY))
    value = headers[name]
    at = draw(st.sampled_from([0, len(value) // 2, len(value) - 1]))
    source = response(headers | {name: value[:at] + byte + value[at + 1 :]})
    if draw(st.booleans()):
        return source
    at = draw(st.integers(0, len(source) - 300))
    return (
        source[:at]
        + draw(st.sampled_from([byte, bytes([source[at] ^ 1]), bytes([source[at] ^ 0x20])]))
        + source[at + 1 :]
    )


@given(siblings(), st.data())
def test_familiar_heads_read_alike(maps, more):
    familiar = ResponseHeadCache()
    for headers in maps:
        source = response(headers)
        familiar.learn(source[:FIRST_READ_SIZE], long_way(Location(0, len(source)), source).status)
    for probes in (st.sampled_from(maps).map(response), *[spoiled_alike(maps)] * 4, spoiled(spoiled_alike(maps))):
        source = more.draw(probes)
        lie = more.draw(st.sampled_from([0, 0, 0, -1, 1]))
        taken_alike(familiar, source, Location(0, max(len(source) + lie, 0)))


def taken_alike(familiar, source, location):
    found = familiar.read((source + b"behind")[:FIRST_READ_SIZE], location.length)
    if found is not None:
        status, headers, begins = found
        usual = long_way(location, source)
        assert (usual.status, list(usual.stored_headers.items())) == (status, list(headers.items()))
        assert usual.payload == Location(begins, location.length - begins)


URLS = st.one_of(
    st.integers(0, 99).map(lambda number: f"https://test.example.com/some/path/{number}"),
    st.text(st.sampled_from("aé/.%2e#@?'\\ \n:"), max_size=12).map(lambda tail: f"https://test.example.com/some/path/{tail}"),
    st.sampled_from(["https://test.example.com/", "https://other.example.com/some/path/1", "https://a@test.example.com/aaaaa",
                     "https://test.example.com:443/some/path/1", "urn:uuid:429fcc4e-0696-4bad-b099-ee9175f023ae", ""]),
)  # fmt: skip
RULES = index.IndexRules(Section("responses", 100, 70_000), has_variants=True, base_url=None)
B2 = index.IndexRules(Section("responses", 100, 70_000), has_variants=False, base_url=None)


@given(
    st.dictionaries(URLS, st.tuples(st.integers(0, 70_001), st.integers(0, 300)), min_size=1, max_size=12),
    st.sampled_from([RULES, B2]),
    st.data(),
)
def test_usual_indexes_read_alike(entries, rules, more):
    value = (lambda pair: entry(pair)) if rules.has_variants else (lambda pair: array(uint(pair[0]), uint(pair[1])))
    items = sorted((text(url), value(pair)) for url, pair in entries.items())
    if more.draw(st.booleans()):
        # A key that is cut to any of its lengths, none included.
        at = more.draw(st.integers(0, len(items) - 1))
        key, item = items[at]
        items[at] = key[: more.draw(st.integers(0, len(key)))], item
    source = more.draw(spoiled(st.just(bytes([0xA0 + len(items)]) + b"".join(key + item for key, item in items))))
    assert outcome(source, rules, shut=False) == outcome(source, rules, shut=True)


def outcome(source, rules, *, shut):
    usual = index._read_usual
    if shut:
        index._read_usual = lambda *_: False
    try:
        return index.read_index(source, rules)
    except (CborError, SectionError) as error:
        return error.reason, error.step, error.offset
    finally:
        index._read_usual = usual


def long_way(location, source):
    """Drive the parser with its short way shut."""
    usual = response_format.read_common_response
    response_format.read_common_response = lambda *_: None
    try:
        return drive(response_format.response_parser(location), reads_from(source))
    finally:
        response_format.read_common_response = usual
