"""The fast paths of the header and index decoders give the results and the errors of the document's steps."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle.format import headers, sections
from headgate.bundle.format.cbor import StepError, encode
from headgate.bundle.model import Section
from tests.malformed.parts import array, entry, text, uint

NAMES = st.one_of(
    st.sampled_from(
        [
            b":status",
            b"etag",
            b"content-type",
            b"vary",
            b"x-own",
            b"access-control-allow-origin",
            b"x" * 24,
            b"y" * 260,
            b"Etag",
            b":path",
            b"",
            b"a b",
            b"link",
        ]
    ),
    st.binary(max_size=30),
)
VALUES = st.one_of(
    st.sampled_from([b"200", b"304", b"2000", b"text/html", b"", b" x", b"x ", b"a\nb", b"x" * 24, b"x" * 300]),
    st.binary(max_size=40),
)
MANY = {b"x-%d" % number: b"v" for number in range(22)}
"""With a few more, these are as many headers as take a head of two bytes."""
MAPS = st.builds(
    lambda fields, many: encode(many | fields), st.dictionaries(NAMES, VALUES, max_size=8), st.sampled_from([{}, MANY])
)


@st.composite
def changed(draw, sources):
    """Return bytes in which sometimes one byte is changed, removed or inserted, or which end early."""
    source = draw(sources)
    if source and draw(st.integers(0, 2)):
        at = draw(st.integers(0, len(source) - 1))
        byte = bytes([draw(st.integers(0, 255))])
        source = draw(st.sampled_from([source[:at] + byte + source[at + 1 :], source[:at] + source[at + 1 :],
                                       source[:at] + byte + source[at:], source[:at]]))  # fmt: skip
    return source


@given(changed(MAPS))
def test_header_loop_equals_the_steps(source):
    assert decoded(headers.decode_headers, source) == decoded(headers._decode_by_steps, source)


def decoded(decode, source):
    try:
        status, fields = decode(source, 7)
    except StepError as error:
        return error.reason, error.step, error.offset
    return status, list(fields.items())


URLS = st.one_of(
    st.integers(0, 99).map(lambda number: f"https://test.example.com/some/path/{number}"),
    st.text(st.sampled_from("aé/.%2e#@?'\\ \n:"), max_size=12).map(lambda tail: f"https://test.example.com/some/path/{tail}"),
    st.sampled_from(["https://test.example.com/", "http://xn--caf-dma.example.com/pa",
                     "https://other.example.com/some/path/1", "https://a@test.example.com/aaaaa",
                     "https://test.example.com:443/some/path/1", "urn:uuid:429fcc4e-0696-4bad-b099-ee9175f023ae", ""]),
)  # fmt: skip
RULES = sections.IndexRules(Section("responses", 100, 70_000), has_variants=True, base_url=None)
B2 = sections.IndexRules(Section("responses", 100, 70_000), has_variants=False, base_url=None)


@given(
    st.dictionaries(URLS, st.tuples(st.integers(0, 70_001), st.integers(0, 300)), min_size=1, max_size=12),
    st.sampled_from([RULES, B2]),
    st.data(),
)
def test_common_index_entries_equal_the_steps(entries, rules, more):
    value = (lambda pair: entry(pair)) if rules.has_variants else (lambda pair: array(uint(pair[0]), uint(pair[1])))
    items = sorted((text(url), value(pair)) for url, pair in entries.items())
    if more.draw(st.booleans()):
        # A key that is cut to any of its lengths, none included.
        at = more.draw(st.integers(0, len(items) - 1))
        key, item = items[at]
        items[at] = key[: more.draw(st.integers(0, len(key)))], item
    source = more.draw(changed(st.just(bytes([0xA0 + len(items)]) + b"".join(key + item for key, item in items))))
    assert outcome(source, rules, fast=True) == outcome(source, rules, fast=False)


def outcome(source, rules, *, fast):
    fast_path = sections._read_common_entries
    if not fast:
        sections._read_common_entries = lambda *_: False
    try:
        return sections.read_index(source, rules)
    except StepError as error:
        return error.reason, error.step, error.offset
    finally:
        sections._read_common_entries = fast_path
