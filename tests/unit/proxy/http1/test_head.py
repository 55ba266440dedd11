"""The grammar of a CONNECT's head."""

import pytest

from headgate.proxy.http1.head import LONGEST_HEAD, Malformed, end_of_head, parse_head

LINE = b"CONNECT a.example:443 HTTP/1.1\r\n"


def test_a_head_is_read() -> None:
    head = parse_head(LINE + b"Host: a.example:443\r\nX-A:\t b c \r\nx-a:\r\nX-B: \xe9\r\n\r\n")
    assert head.method == "CONNECT"
    assert head.target == "a.example:443"
    assert head.fields == [("host", "a.example:443"), ("x-a", "b c"), ("x-a", ""), ("x-b", "\xe9")]
    assert head.keep_alive
    assert not head.has_body


@pytest.mark.parametrize(
    ("raw", "lasts"),
    [
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", True),
        (b"CONNECT a:1 HTTP/1.1\r\nConnection: keep-alive\r\n\r\n", True),
        (b"CONNECT a:1 HTTP/1.1\r\nConnection: x ,CLOSE\r\n\r\n", False),
        (b"CONNECT a:1 HTTP/1.1\r\nConnection: x\r\nConnection: close\r\n\r\n", False),
        (b"CONNECT a:1 HTTP/1.0\r\n\r\n", False),
        (b"CONNECT a:1 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
    ],
)
def test_whether_a_connection_lasts(raw: bytes, lasts: bool) -> None:
    assert parse_head(raw).keep_alive is lasts


@pytest.mark.parametrize(
    ("fields", "has_body"),
    [
        (b"", False),
        (b"Content-Length: 0\r\n", False),
        (b"Content-Length: 7\r\n", True),
        (b"Transfer-Encoding: chunked\r\n", True),
        (b"Transfer-Encoding: identity\r\n", True),
    ],
)
def test_whether_a_body_follows(fields: bytes, has_body: bool) -> None:
    assert parse_head(b"GET / HTTP/1.1\r\n" + fields + b"\r\n").has_body is has_body
    if has_body:
        with pytest.raises(Malformed):
            parse_head(LINE + fields + b"\r\n")


MALFORMED = [
    b"\r\n",
    b"CONNECT\r\n\r\n",
    b"CONNECT a:443\r\n\r\n",
    b"CONNECT  a:443 HTTP/1.1\r\n\r\n",
    b"CONNECT a:443  HTTP/1.1\r\n\r\n",
    b" CONNECT a:443 HTTP/1.1\r\n\r\n",
    b"CONNECT a:443 HTTP/1.1 \r\n\r\n",
    b"CONNECT\ta:443\tHTTP/1.1\r\n\r\n",
    b"CONNECT a b:443 HTTP/1.1\r\n\r\n",
    b"CONNECT a:443 HTTP/2.0\r\n\r\n",
    b"CONNECT a:443 HTTP/1.2\r\n\r\n",
    b"CONNECT a:443 HTTP/1.10\r\n\r\n",
    b"CONNECT a:443 http/1.1\r\n\r\n",
    b"CONN(ECT a:443 HTTP/1.1\r\n\r\n",
    "CONNECT \uff11.0.0.1:443 HTTP/1.1\r\n\r\n".encode(),
    b"CONNECT a\x00:443 HTTP/1.1\r\n\r\n",
    LINE + b"Host : a\r\n\r\n",
    LINE + b" Host: a\r\n\r\n",
    LINE + b"X: a\r\n b\r\n\r\n",
    LINE + b"X: a\r\n\tb\r\n\r\n",
    LINE + b"nonsense\r\n\r\n",
    LINE + b": a\r\n\r\n",
    LINE + b"X: a\x00b\r\n\r\n",
    LINE + b"X: a\x7fb\r\n\r\n",
    LINE + b"X: a\rb\r\n\r\n",
    LINE + b"X: a\nY: b\r\n\r\n",
    LINE + b"X\xe9: a\r\n\r\n",
    LINE + b"Host: a\r\nHost: a\r\n\r\n",
    LINE + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    LINE + b"Content-Length: 0, 0\r\n\r\n",
    LINE + b"Content-Length: +0\r\n\r\n",
    LINE + b"Content-Length: -0\r\n\r\n",
    LINE + b"Content-Length:\r\n\r\n",
    LINE + b"Content-Length: \xb2\r\n\r\n",
    LINE + b"Content-Length: 1\r\n\r\n",
    LINE + b"Content-Length: 18446744073709551616\r\n\r\n",
]


@pytest.mark.parametrize("raw", MALFORMED)
def test_what_could_be_read_in_two_ways_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        parse_head(raw)


def by_and_by(raw: bytes) -> None:
    """Look at a head each time a byte has come."""
    for stop in range(1, len(raw) + 1):
        end = end_of_head(raw[:stop], stop - 1)
        if end:
            parse_head(raw[:end])
            break


@pytest.mark.parametrize("raw", MALFORMED)
def test_what_is_malformed_is_found_out_byte_by_byte_too(raw: bytes) -> None:
    with pytest.raises(Malformed):
        by_and_by(raw)


def test_the_end_is_found_wherever_the_head_was_split() -> None:
    raw = LINE + b"Host: a\r\nX: y\r\n\r\n"
    for cut in range(1, len(raw)):
        assert end_of_head(raw[:cut]) == 0
        assert end_of_head(raw, cut) == len(raw)
        assert end_of_head(bytearray(raw + b"more\r\n\r\n"), cut) == len(raw)


@pytest.mark.parametrize(
    "beginning",
    [
        b"CONNECT a:443 HTTP/1.1\n",
        b"CONNECT a:443 HTTP/1.1\rX",
        b"\x16\x03\x01",
        b"\x00",
        b"nonsense\r\n",
        b"GET /\r\n",
        b"PRI * HTTP/2.0\r\n",
        LINE + b"X: a\n",
        LINE + b"X: \x7f",
    ],
)
def test_a_beginning_that_cannot_become_right_is_not_waited_on(beginning: bytes) -> None:
    with pytest.raises(Malformed):
        end_of_head(beginning)


@pytest.mark.parametrize(
    "beginning", [b"", b"C", b"CONNECT a:443 HTTP/1.1", LINE[:-1], LINE, LINE + b"X", LINE + b"\r"]
)
def test_a_beginning_that_can_is(beginning: bytes) -> None:
    assert end_of_head(beginning) == 0


def test_a_head_is_bounded() -> None:
    room = LONGEST_HEAD - len(LINE) - len(b"X: \r\n\r\n")
    whole = LINE + b"X: " + b"y" * room + b"\r\n\r\n"
    assert end_of_head(whole) == LONGEST_HEAD
    parse_head(whole)
    with pytest.raises(Malformed, match="longer than 16384 bytes"):
        end_of_head(LINE + b"X: " + b"y" * (room + 1) + b"\r\n\r\n")
    with pytest.raises(Malformed, match="longer than 16384 bytes"):
        end_of_head(b"y" * (LONGEST_HEAD + 1))
