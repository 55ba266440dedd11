from io import BytesIO

import pytest

from headgate.bundle.sources.selection import SkipExchange
from headgate.bundle.sources.warc_records import read_body, read_head

CHUNKED = [("Transfer-Encoding", "chunked")]


def test_head_has_status_and_fields() -> None:
    block = BytesIO(b"HTTP/1.1 200 OK\r\nA: b\r\nA:c \r\nno colon\r\nCaf\xe9: \xff\r\n\r\nbody")
    assert read_head(block) == (200, [("A", "b"), ("A", "c"), ("Caf\xe9", "\xff")])
    assert block.read() == b"body"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"HTTP/1.0 404 Not Found\r\n", 404),
        (b"HTTP/1.1 200\r\n", 200),
        (b"HTTP/2 301 \n", 301),
        (b"HTTP/1.1  500  \xff\xfe\r\n", 500),
    ],
)
def test_lenient_status_lines_are_accepted(line: bytes, status: int) -> None:
    assert read_head(BytesIO(line)) == (status, [])


def test_folded_values_and_bare_line_feeds_are_accepted() -> None:
    assert read_head(BytesIO(b"HTTP/1.1 200 OK\nA: b\n  c\n\td\n\n")) == (200, [("A", "b c d")])
    assert read_head(BytesIO(b"HTTP/1.1 200 OK\n folded onto nothing\nA: b\n\n")) == (200, [("A", "b")])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"<html>",
        b"HTTP/1.1 2000 OK\r\n",
        b"HTTP/1.1 abc\r\n",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n",
    ],
)
def test_block_without_a_response_is_refused(head: bytes) -> None:
    with pytest.raises(SkipExchange, match="not an HTTP response"):
        read_head(BytesIO(head))


def test_endless_fields_are_refused() -> None:
    with pytest.raises(SkipExchange, match="too long"):
        read_head(BytesIO(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000))
    with pytest.raises(SkipExchange, match="too long"):
        read_head(BytesIO(b"HTTP/1.1 200 OK\r\n" + b"a" * 1_000_000))


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"3;name=value\r\nabc\r\n0;last\r\nTrailer: x\r\n\r\n", b"abc"),
        (b"00003 \nabc\n0\n\n", b"abc"),
        (b"0\r\n\r\n", b""),
        (b"A\r\n0123456789\r\n0\r\n", b"0123456789"),
    ],
)
def test_chunked_body_is_joined(sent: bytes, found: bytes) -> None:
    assert b"".join(read_body(BytesIO(sent), CHUNKED)) == found


def test_large_chunk_is_read_in_pieces() -> None:
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (1_000_000, b"x" * 1_000_000)
    parts = list(read_body(BytesIO(sent), CHUNKED))
    assert b"".join(parts) == b"x" * 1_000_000
    assert max(map(len, parts)) <= 1 << 16


@pytest.mark.parametrize("sent", [b"<html>\n<p>no chunks\n", b"", b"-1\r\nabc", b"0x3\r\nabc"])
def test_body_with_removed_chunks_is_read(sent: bytes) -> None:
    assert b"".join(read_body(BytesIO(sent), CHUNKED)) == sent


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"5\r\nabc", "cut short"),
        (b"3\r\nabc", "cut short"),
        (b"3\r\nabc\r\n", "cut short"),
        (b"ffffffffffffff\r\nabc", "cut short"),
        (b"3\r\nabc\r\nzzz\r\n", "damaged"),
        (b"3\r\nabcdef\r\n0\r\n", "damaged"),
    ],
)
def test_unterminated_chunks_are_refused(sent: bytes, reason: str) -> None:
    with pytest.raises(SkipExchange, match=reason):
        list(read_body(BytesIO(sent), CHUNKED))


@pytest.mark.parametrize("value", ["identity", "", " "])
def test_body_without_chunks_is_the_rest_of_the_block(value: str) -> None:
    assert b"".join(read_body(BytesIO(b"3\r\nabc"), [("transfer-encoding", value)])) == b"3\r\nabc"
    assert b"".join(read_body(BytesIO(b"3\r\nabc"), [])) == b"3\r\nabc"


@pytest.mark.parametrize("value", ["gzip, chunked", "gzip", "chunked, chunked"])
def test_other_transfer_codings_are_refused(value: str) -> None:
    with pytest.raises(SkipExchange, match="transfer coding"):
        read_body(BytesIO(b""), [("Transfer-Encoding", value)])
