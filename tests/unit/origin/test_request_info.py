import pytest

from headgate.origin import RequestInfo
from headgate.origin.request_info import MAX_VALUE_SIZE, address_in, forwarded_hops, x_forwarded_for_hops


def test_lines_of_one_field_are_joined() -> None:
    info = RequestInfo(b"GET", b"/", b"a", [(b"x", b"1"), (b"y", b"2"), (b"x", b"3")], "")
    assert info.field(b"x") == b"1, 3"
    assert info.field(b"y") == b"2"
    assert info.field(b"z") is None


FORWARDED: list[tuple[bytes, list[str]]] = [
    # RFC 7239, section 4 and 6.1: the examples there.
    (b'for="_gazonk"', [""]),
    (b'For="[2001:db8:cafe::17]:4711"', ["2001:db8:cafe::17"]),
    (b"for=192.0.2.60;proto=http;by=203.0.113.43", ["192.0.2.60"]),
    (b"for=192.0.2.43, for=198.51.100.17", ["198.51.100.17", "192.0.2.43"]),
    (b'for="192.0.2.43:47011"', ["192.0.2.43"]),
    (b"for=unknown", [""]),
    (b"for=_hidden, for=_SEVKISEK", ["", ""]),
    # A hop without `for` counts as a hop.
    (b"for=192.0.2.1, by=203.0.113.43", ["", "192.0.2.1"]),
    (b"for=192.0.2.1;for=192.0.2.2", [""]),
    (b"", []),
    (b" , ,for=192.0.2.1 , ", ["192.0.2.1"]),
    (b"for=192.0.2.1;", ["192.0.2.1"]),
    (b'for="192.0.2\\.1"', ["192.0.2.1"]),
    (b'for=192.0.2.1;x="a, for=9.9.9.9"', ["192.0.2.1"]),
    # Malformed as a whole: it has no hops.
    (b'for=9.9.9.9;x=", for=192.0.2.1', []),
    (b'for=9.9.9.9;x=", for="[2001:db8::1]"', []),
    (b"for = 192.0.2.1", []),
    (b"192.0.2.1", []),
    (b"for=[2001:db8::1]", []),
    (b'for="\x00"', []),
    (b"for", []),
    (b'"', []),
]


def test_forwarded_is_read_from_its_right_end() -> None:
    found = [(value, list(forwarded_hops(value))) for value, _ in FORWARDED]
    assert [row for row in found if row not in FORWARDED] == []


@pytest.mark.parametrize(
    ("value", "hops"),
    [
        (b"192.0.2.1", ["192.0.2.1"]),
        (b"192.0.2.1, 2001:db8::1", ["2001:db8::1", "192.0.2.1"]),
        (b"192.0.2.1:80,[2001:db8::1]:80,[2001:db8::2]", ["2001:db8::2", "2001:db8::1", "192.0.2.1"]),
        (b"unknown, , 192.0.2.1,", ["192.0.2.1", ""]),
        (b"", []),
    ],
)
def test_x_forwarded_for_is_read_from_its_right_end(value: bytes, hops: list[str]) -> None:
    assert list(x_forwarded_for_hops(value)) == hops


def test_a_value_has_a_size_limit() -> None:
    longest, hop = b"," * (MAX_VALUE_SIZE - 9), b"192.0.2.1"
    assert list(x_forwarded_for_hops(longest + hop)) == ["192.0.2.1"]
    assert list(x_forwarded_for_hops(longest + b"," + hop)) == []
    longest = b"," * (MAX_VALUE_SIZE - 13)
    assert list(forwarded_hops(longest + b"for=" + hop)) == ["192.0.2.1"]
    assert list(forwarded_hops(longest + b",for=" + hop)) == []


@pytest.mark.parametrize(
    "node", [b"[::1", b"[::1]x", b"a" * 65, b"::1%eth0", b"\xb2.1.1.1", b"host.example", b"_x", b"1.2.3.4 "]
)
def test_a_malformed_address_is_empty(node: bytes) -> None:
    assert address_in(node) == ""
