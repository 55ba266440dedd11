"""The short ways of reading a bundle take nothing that the document's own way does not, and give the same."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle import fields, index, parser
from headgate.bundle.cbor import CborError, encode
from headgate.bundle.metadata import Location, Section
from headgate.bundle.need import run
from headgate.bundle.parser import FIRST_READ, read_usual_response
from headgate.bundle.section import SectionError
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
    common = fields.read_common_fields(source)
    if common is not None:
        headers, pseudos = fields._read_any(source)
        assert (headers, {b":status": common[1]}) == (common[0], pseudos)


@given(MAPS, st.binary(max_size=300), st.sampled_from([0, 0, 0, -1, 1]), st.data())
def test_usual_responses_read_alike(headers, payload, lie, more):
    source = more.draw(spoiled(st.just(b"\x82" + data(headers) + data(payload))))
    location = Location(0, max(len(source) + lie, 0))
    usual = read_usual_response(source[:FIRST_READ], location)
    if usual is None:
        return
    assert usual == long_way(location, source)


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
    usual = parser.read_usual_response
    parser.read_usual_response = lambda *_: None
    try:
        return run(parser.response_parser(location), memoryview(source))
    finally:
        parser.read_usual_response = usual
