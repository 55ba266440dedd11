"""Headers of the PROXY protocol: each valid one is found whole at any split, each malformed one as soon as it is."""

import ipaddress
import struct

import pytest

from headgate.errors import ProtocolError
from headgate.http.proxy_protocol import MAX_HEADER_SIZE, parse_proxy_header

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
FOUR, SIX = (ipaddress.ip_address(one).packed for one in ("192.0.2.1", "2001:db8::1"))
MAPPED = ipaddress.ip_address("::ffff:192.0.2.1").packed


def binary(command: int, family: int, content: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(content)) + content


@pytest.mark.parametrize(
    ("header", "source"),
    [
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 0 65535\r\n", "192.0.2.1"),
        (b"PROXY TCP6 2001:DB8:0::1 ::1 1 2\r\n", "2001:db8::1"),
        (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", "192.0.2.1"),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff:f...f:ffff 65535\r\n", None),
        (b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n", None),
        (binary(0x21, 0x11, FOUR * 2 + b"\0\1\0\2"), "192.0.2.1"),
        (binary(0x21, 0x21, SIX * 2 + b"\0\1\0\2"), "2001:db8::1"),
        (binary(0x21, 0x21, MAPPED * 2 + b"\0\1\0\2"), "192.0.2.1"),
        (binary(0x21, 0x11, FOUR * 2 + bytes(4) + b"\4\0\1x"), "192.0.2.1"),
        (binary(0x21, 0x31, bytes(216)), None),
        (binary(0x21, 0x00, b""), None),
        (binary(0x20, 0x00, b""), None),
        (binary(0x20, 0xFF, bytes(MAX_HEADER_SIZE - 16)), None),
    ],
)
def test_header_is_whole_at_its_last_byte_and_no_earlier(header: bytes, source: str | None) -> None:
    assert all(parse_proxy_header(header[:end]) is None for end in range(len(header)))
    for rest in (b"", b"GET / HTTP/1.1\r\n", header):
        assert parse_proxy_header(header + rest) == (len(header), source)


@pytest.mark.parametrize(
    "data",
    [
        b"G",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXY\r",
        b"\x16\x03\x01",
        b"proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        b"PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 655360\r\n",
        b"PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 ::1 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        b"PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY UNKNOWN " + b"x" * 93,
        SIGNATURE[:-1] + b"X",
        binary(0x11, 0x11, bytes(12)),
        binary(0x22, 0x11, bytes(12)),
        binary(0x21, 0x12, bytes(12)),
        binary(0x21, 0x11, bytes(11)),
        binary(0x21, 0x21, bytes(35)),
        binary(0x21, 0x11, bytes(MAX_HEADER_SIZE - 15))[:16],
        binary(0x20, 0x00, bytes(MAX_HEADER_SIZE - 15))[:16],
    ],
)
def test_malformed_header_is_an_error_before_it_is_whole(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="malformed header of the PROXY protocol"):
        parse_proxy_header(data)
