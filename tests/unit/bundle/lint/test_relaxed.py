"""headgate.bundle.lint.relaxed."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle.format.cbor import CborError, Items, decode, encode
from headgate.bundle.lint import relaxed as relaxed_module
from headgate.bundle.lint.relaxed import relax, skip
from tests.malformed.parts import array, data, head, pairs, text, uint

VALUES = st.recursive(
    st.one_of(st.integers(0, (1 << 64) - 1), st.binary(max_size=30), st.text(max_size=30), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=12,
)


@st.composite
def loose(draw, value=None):
    """Some value, its deterministic encoding, and another that says the same."""
    value = draw(VALUES) if value is None else value
    return value, encode(value), _loosely(draw, value)


def _loosely(draw, value):
    def any_head(major, argument):
        shortest = len(head(major, argument)) - 1
        return head(major, argument, draw(st.sampled_from([size for size in (0, 1, 2, 4, 8) if size >= shortest])))

    if isinstance(value, bool):
        return encode(value)
    if isinstance(value, int):
        return any_head(0, value)
    if isinstance(value, (bytes, str)):
        major, content = (2, value) if isinstance(value, bytes) else (3, value.encode())
        if draw(st.booleans()):
            return any_head(major, len(content)) + content
        cut = draw(st.integers(0, len(content)))
        chunks = (any_head(major, len(part)) + part for part in (content[:cut], content[cut:]))
        return bytes([major << 5 | 31]) + b"".join(chunks) + b"\xff"
    if isinstance(value, list):
        major, count, items = 4, len(value), b"".join(_loosely(draw, member) for member in value)
    else:
        ordered = sorted(value.items(), key=lambda entry: encode(entry[0]))
        major, count = 5, len(value)
        items = b"".join(_loosely(draw, key) + _loosely(draw, member) for key, member in ordered)
    if draw(st.booleans()):
        return any_head(major, count) + items
    return bytes([major << 5 | 31]) + items + b"\xff"


@given(loose())
def test_another_encoding_of_a_value_gives_the_deterministic_one(found):
    value, strict, other = found
    relaxed = relax(other)
    assert relaxed.is_whole
    assert relaxed.source == strict
    assert decode(relaxed.source) == value
    assert (relaxed.faults == []) == (other == strict)
    assert skip(relaxed.source, 0) == len(strict)
    assert relaxed.original(len(strict)) == len(other)


def strictly(source):
    items = Items(source)
    try:
        items.any()
        items.end()
    except CborError as error:
        return error
    return None


@given(st.binary(max_size=60))
def test_it_agrees_with_the_strict_parser_on_any_bytes(source):
    """Whole and without a fault: the strict parser takes the item, but for the order of maps and UTF-8."""
    relaxed = relax(source)
    refused = strictly(source)
    assert relaxed.faults or refused is None or "key" in refused.reason or "UTF-8" in refused.reason
    assert refused is not None or (relaxed.is_whole, relaxed.faults, relaxed.source) == (True, [], source)
    assert all(0 <= fault.offset <= len(source) for fault in relaxed.faults)
    assert all(0 <= relaxed.original(position) <= len(source) for position in range(len(relaxed.source) + 1))


@given(loose(), st.integers(0, 200))
def test_a_prefix_gives_what_is_whole_in_it(found, size):
    _, _, other = found
    relaxed = relax(other[: min(size, len(other) - 1)])
    assert not relaxed.is_whole
    assert relaxed.faults[-1].step == "3.5.1 step 1"
    with pytest.raises(CborError):
        skip(relaxed.source, 0)


def test_where_a_byte_was():
    inner = array(uint(1, 8), data(b"x"), b"\x5f" + data(b"ab") + data(b"c") + b"\xff", text("end"))
    relaxed = relax(b"\x9f" + inner + b"\xff")
    assert relaxed.source == array(array(uint(1), data(b"x"), data(b"abc"), text("end")))
    places = [relaxed.original(relaxed.source.index(part)) for part in (data(b"x"), data(b"abc"), text("end"))]
    assert places == [1 + inner.index(part) for part in (data(b"x"), b"\x5f", text("end"))]
    assert [fault.offset for fault in relaxed.faults] == [0, 2, 1 + inner.index(b"\x5f")]
    assert {fault.step for fault in relaxed.faults} == {"3.5.1 step 2"}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"", "should begin"),
        (b"\xff", "no simple value"),
        (b"\x1c", "reserved"),
        (b"\x1f", "indefinite"),
        (b"\x19\x01", "cut"),
        (b"\xbf\x01\xff", "behind a key"),
        (b"\x5f\x61x\xff", "something else"),
        (b"\x5f\x5f\xff\xff", "something else"),
        (b"\x5f\x43x\xff", "something else"),
        (b"\x5f\x41x", "should begin"),
        (b"\x9f\x01", "should begin"),
        (b"\xf8\x10", "no simple value"),
    ],
)
def test_what_is_no_cbor(source, reason):
    relaxed = relax(source)
    assert not relaxed.is_whole
    assert reason in relaxed.faults[-1].reason
    assert relaxed.faults[-1].step == "3.5.1 step 1"


def test_a_float_that_is_longer_than_it_need_be_and_tags():
    source = array(b"\xfb" + struct.pack(">d", 1.5), b"\xd8\x06" + uint(1), b"\xf9\x3e\0")
    relaxed = relax(source)
    assert relaxed.source == array(b"\xf6", b"\xc6" + uint(1), b"\xf9\x3e\0")
    assert [fault.offset for fault in relaxed.faults] == [1, 10]


def test_bytes_behind_the_item():
    relaxed = relax(pairs() + b"\0\0")
    assert (relaxed.source, relaxed.is_whole) == (pairs(), True)
    assert [(fault.step, fault.offset) for fault in relaxed.faults] == [("3.5.1 step 3", 1)]


def test_faults_end_somewhere(monkeypatch):
    monkeypatch.setattr(relaxed_module, "MOST_FAULTS", 10)
    relaxed = relax(b"\x9f" + uint(1, 1) * 100 + b"\xff")
    assert not relaxed.is_whole
    assert len(relaxed.faults) == 11
    assert "the rest is left alone" in relaxed.faults[-1].reason
    assert len(relaxed.source) < 19
