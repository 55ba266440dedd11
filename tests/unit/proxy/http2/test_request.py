"""Request heads: CONNECT, other methods, and malformed ones."""

import pytest

from headgate.proxy.http2.engine import MAX_HEAD_SIZE
from headgate.proxy.http2.request import MalformedRequest, Request, parse_request

CONNECT = [(b":method", b"CONNECT"), (b":authority", b"www.example.org:443")]
GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/"), (b":authority", b"www.example.org")]


def test_connect_is_parsed() -> None:
    more = [(b"proxy-authorization", b"Bearer \xe9 x"), (b"chrome-tunnel", b""), (b"te", b"trailers")]
    assert parse_request([*CONNECT, *more]) == Request(
        "CONNECT",
        "www.example.org:443",
        "",
        [("proxy-authorization", "Bearer é x"), ("chrome-tunnel", ""), ("te", "trailers")],
    )
    assert parse_request(CONNECT[::-1]).authority == "www.example.org:443"


@pytest.mark.parametrize(
    "lines", [GET, GET[:3], [(b":method", b"connect"), *GET[1:]], [(b":method", b"PRI"), *GET[1:]]]
)
def test_another_method_is_parsed(lines: list[tuple[bytes, bytes]]) -> None:
    request = parse_request(lines)
    assert (request.method, request.path) == (lines[0][1].decode(), "/")


def test_another_method_may_have_a_body() -> None:
    assert parse_request([*GET, (b"content-length", b"5")]).method == "GET"


MALFORMED = [
    [],
    CONNECT[:1],
    CONNECT[1:],
    [*CONNECT, (b":path", b"/")],
    [*CONNECT, (b":scheme", b"https")],
    [*CONNECT, (b":protocol", b"connect-udp")],
    [*CONNECT, (b":status", b"200")],
    [*CONNECT, (b":unknown", b"x")],
    [*CONNECT, CONNECT[1]],
    [CONNECT[0], (b":authority", b"")],
    [CONNECT[0], (b":authority", b"a b:443")],
    [CONNECT[0], (b":authority", b"a\x00:443")],
    [CONNECT[0], (b":authority", b"\xc3\xa9:443")],
    [CONNECT[0], (b"host", b"a:443")],
    [CONNECT[0], (b"x", b"y"), CONNECT[1]],
    [(b":method", b""), CONNECT[1]],
    [*GET[:2], GET[3]],
    [GET[0], *GET[2:]],
    [*GET, (b":protocol", b"x")],
    [*CONNECT, (b"X", b"y")],
    [*CONNECT, (b"", b"y")],
    [*CONNECT, (b"a b", b"y")],
    [*CONNECT, (b"a:b", b"y")],
    [*CONNECT, (b"\xff", b"y")],
    [*CONNECT, (b"x", b"a\r\nb")],
    [*CONNECT, (b"x", b"a\nb")],
    [*CONNECT, (b"x", b"a\x00")],
    [*CONNECT, (b"x", b" a")],
    [*CONNECT, (b"x", b"a\t")],
    [*CONNECT, (b"x", b" ")],
    [*CONNECT, (b"x", b"a\x7fb")],
    [*CONNECT, (b"connection", b"close")],
    [*CONNECT, (b"proxy-connection", b"keep-alive")],
    [*CONNECT, (b"keep-alive", b"5")],
    [*CONNECT, (b"transfer-encoding", b"chunked")],
    [*CONNECT, (b"upgrade", b"h2c")],
    [*CONNECT, (b"te", b"gzip")],
    [*CONNECT, (b"host", b"a"), (b"host", b"a")],
    [*CONNECT, (b"content-length", b"5")],
    [*CONNECT, (b"content-length", b"0"), (b"content-length", b"0")],
    [*CONNECT, (b"content-length", b"+0")],
    [*CONNECT, (b"content-length", b"\xb2")],
    [*CONNECT, (b"x", b"y" * MAX_HEAD_SIZE)],
]


def test_malformed_heads() -> None:
    for lines in MALFORMED:
        with pytest.raises(MalformedRequest):
            parse_request(lines)


@pytest.mark.parametrize("value", [b"a", b"a b", b"a\tb", b"", b"\xff", b"a  b", b'"x\\"'])
def test_field_values(value: bytes) -> None:
    assert parse_request([*CONNECT, (b"x", value)]).fields == [("x", value.decode("latin-1"))]


def test_connect_with_a_content_length_of_zero() -> None:
    assert parse_request([*CONNECT, (b"content-length", b"0")]).method == "CONNECT"
    assert parse_request([*CONNECT, (b"host", b"other")]).authority == "www.example.org:443"
