"""Responses of HTTP/1, read whole and byte by byte, and what is none."""

import pytest

from headgate.agent.advice.response import MOST_HEAD, MOST_INTERIM, Broken, ResponseReader

MOST = 1000
OK = b"HTTP/1.1 200 OK\r\n"


def reader(said: bytes, *, step: int) -> ResponseReader:
    chunks = (said[position : position + step] for position in range(0, len(said), step))
    return ResponseReader(lambda: next(chunks, b""))


def read(said: bytes, *, step: int) -> tuple[int, list[tuple[str, str]], bytes]:
    response = reader(said, step=step)
    status, fields = response.head()
    return status, fields, response.body(most=MOST)


def shown(said: object) -> str | None:
    return said[:80].decode("latin-1") if isinstance(said, bytes) else None


any_step = pytest.mark.parametrize("step", [1, 2, 7, 1 << 16])


@any_step
@pytest.mark.parametrize(
    ("said", "fields"),
    [
        (b"A: b\r\n", [("A", "b")]),
        (b"A:b\r\nA:  c \t\r\n", [("A", "b"), ("A", "c")]),
        (b"A:\r\nB: \r\n", [("A", ""), ("B", "")]),
        (b"A: b: c\r\n", [("A", "b: c")]),
        (b"!#$%&'*+-.^_`|~09azAZ: a\r\n", [("!#$%&'*+-.^_`|~09azAZ", "a")]),
        (b"A: \x01\x7f\xe9\x85\r\n", [("A", "\x01\x7f\xe9\x85")]),
        (b"A: b\r\n\t c\r\n d\r\n", [("A", "b c d")]),
        (b"A: b\nC: d\n", [("A", "b"), ("C", "d")]),
    ],
)
def test_fields_are_one_character_for_a_byte(said, fields, step):
    assert read(OK + said + b"Content-Length: 0\r\n\r\n", step=step)[1] == [*fields, ("Content-Length", "0")]


@any_step
@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"HTTP/1.1 200 OK", 200),
        (b"HTTP/1.1 200 ", 200),
        (b"HTTP/1.1 503", 503),
        (b"HTTP/1.0 999 \x80 a b", 999),
    ],
)
def test_a_reason_need_not_be(line, status, step):
    assert read(line + b"\r\n\r\n", step=step) == (status, [], b"")


@any_step
@pytest.mark.parametrize(
    ("said", "body"),
    [
        (b"Content-Length: 5\r\n\r\nhello", b"hello"),
        (b"Content-Length: 5\r\n\r\nhello, and more", b"hello"),
        (b"Content-Length: 5, 5\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"Content-Length: 00000000000000000005\r\n\r\nhello", b"hello"),
        (b"Content-Length: 0\r\n\r\nhello", b""),
        (b"\r\nhello", b"hello"),
        (b"Connection: close\r\n\r\n" + b"x" * MOST, b"x" * MOST),
        (b"Transfer-Encoding: Chunked\r\n\r\n2\r\nhe\r\n3 ;a=b\r\nllo\r\n0\r\n\r\nmore", b"hello"),
        (b"Transfer-Encoding: chunked\r\n\r\n05\r\nhello\r\n00\r\nA: b\r\nC: d\r\n\r\n", b"hello"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\nA\r\nhello, you\r\n0\r\n\r\n", b"hello, you"),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b""),
    ],
    ids=shown,
)
def test_a_body_is_framed_by_its_length_by_chunks_or_by_the_end(said, body, step):
    assert read(OK + said, step=step)[2] == body


@any_step
@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body_whatever_the_fields_say(status, step):
    said = b"HTTP/1.1 %d No\r\nContent-Length: 5\r\n\r\nhello" % status
    assert read(said, step=step) == (status, [("Content-Length", "5")], b"")


@any_step
def test_interim_responses_are_skipped(step):
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 9\r\n\r\n"
    assert read(hints + OK + b"Content-Length: 5\r\n\r\nhello", step=step)[::2] == (200, b"hello")


def test_only_so_many_interim_responses_are_skipped():
    hint = b"HTTP/1.1 102 Processing\r\n\r\n"
    assert reader(hint * MOST_INTERIM + OK + b"\r\n", step=1 << 16).head() == (200, [])
    with pytest.raises(Broken, match="interim"):
        reader(hint * (MOST_INTERIM + 1) + OK + b"\r\n", step=1 << 16).head()


@any_step
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"H",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nA: b\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\r\n" + OK + b"\r\n",
        b" " + OK + b"\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 2\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"HTTP/1.1 000 Nothing\r\n\r\n",
        b"HTTP/1.1 099 Nothing\r\n\r\n" + OK + b"\r\n",
        b"HTTP/1.1 -20 OK\r\n\r\n",
        "HTTP/1.1 ２００ OK\r\n\r\n".encode(),
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/11 200 OK\r\n\r\n",
        b"HTTP/1.1 200 O\0K\r\n\r\n",
        b"HTTP/1.1 200 O\rK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n" + OK + b"\r\n",
        OK + b" A: b\r\n\r\n",
        OK + b"A\r\n\r\n",
        OK + b": b\r\n\r\n",
        OK + b"A : b\r\n\r\n",
        OK + b"A b: c\r\n\r\n",
        OK + b"\xe9: b\r\n\r\n",
        OK + b"A\0: b\r\n\r\n",
        OK + b"A: b\0c\r\n\r\n",
        OK + b"A: b\rc\r\n\r\n",
        OK + b"A: b\r\r\n\r\n",
        OK + b"A: b\vc\r\n\r\n",
        OK + b"A: b\r\n c\0\r\n\r\n",
        OK + b"Content-Length: five\r\n\r\nhello",
        OK + b"Content-Length: -5\r\n\r\nhello",
        OK + b"Content-Length: +5\r\n\r\nhello",
        OK + b"Content-Length: 5_0\r\n\r\nhello",
        OK + b"Content-Length: 0x5\r\n\r\nhello",
        OK + b"Content-Length: \xb2\r\n\r\nhello",
        OK + b"Content-Length:\r\n\r\nhello",
        OK + b"Content-Length: 5 5\r\n\r\nhello",
        OK + b"Content-Length: 5, 6\r\n\r\nhello",
        OK + b"Content-Length: 5,\r\n\r\nhello",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        OK + b"Content-Length: " + b"5" * 21 + b"\r\n\r\nhello",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\n\r\nhello",
        OK + b"Transfer-Encoding:\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\nA: \0\r\n\r\n" + OK + b"\r\n",
    ],
)
def test_what_is_no_head_of_http_is_broken(said, step):
    with pytest.raises(Broken):
        reader(said, step=step).head()


@any_step
@pytest.mark.parametrize(
    "said",
    [
        b"Content-Length: 5\r\n\r\nhell",
        b"Content-Length: 5\r\n\r\n",
        b"Content-Length: 1001\r\n\r\n" + b"x" * 1001,
        b"Content-Length: 99999999999999999999\r\n\r\nhello",
        b"\r\n" + b"x" * (MOST + 1),
        *(
            b"Transfer-Encoding: chunked\r\n\r\n" + chunks
            for chunks in (
                b"",
                b"5",
                b"5\r\n",
                b"5\r\nhell",
                b"5\r\nhello",
                b"5\r\nhello\r\n",
                b"5\r\nhello\r\n0",
                b"5\r\nhello\r\n0\r\n",
                b"5\r\nhello\r\n0\r\nA: b\r\n",
                b"5\r\nhello\r\n0\r\nA b\r\n\r\n",
                b"5\r\nhello0\r\n\r\n",
                b"5\r\nhello, 0\r\n\r\n",
                b"5\r\nhell\r\n0\r\n\r\n",
                b"5\nhello\r\n0\r\n\r\n",
                b"5\r\nhello\n0\r\n\r\n",
                b"\r\nhello\r\n0\r\n\r\n",
                b"-5\r\nhello\r\n0\r\n\r\n",
                b"+5\r\nhello\r\n0\r\n\r\n",
                b"0x5\r\nhello\r\n0\r\n\r\n",
                b" 5\r\nhello\r\n0\r\n\r\n",
                b"5 5\r\nhello\r\n0\r\n\r\n",
                b"0" * 20 + b"5\r\nhello\r\n0\r\n\r\n",
                b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
                b"1F4\r\n" + b"x" * 500 + b"\r\n1f5\r\n" + b"x" * 501 + b"\r\n0\r\n\r\n",
                b"5;" + b"a" * MOST_HEAD + b"\r\nhello\r\n0\r\n\r\n",
                b"0\r\n" + b"A: b\r\n" * (MOST_HEAD // 6 + 1) + b"\r\n",
            )
        ),
    ],
    ids=shown,
)
def test_what_is_no_whole_body_or_too_long_is_broken(said, step):
    response = reader(OK + said, step=step)
    assert response.head()[0] == 200
    with pytest.raises(Broken):
        response.body(most=MOST)


@pytest.mark.parametrize("step", [1, 100, 1 << 16])
@pytest.mark.parametrize(
    "line", [b"A: b\r\n", b"A: " + b"b" * (MOST_HEAD // 2) + b"\r\n", b"A:\n", b"A:b\n \n"], ids=shown
)
def test_a_head_has_a_bound(line, step):
    most = (MOST_HEAD - len(OK) - 2) // len(line)
    assert reader(OK + line * most + b"\r\n", step=step).head()[0] == 200
    with pytest.raises(Broken, match="too long"):
        reader(OK + line * (most + 1) + b"\r\n", step=step).head()


def test_a_line_without_an_end_is_held_no_further_than_the_bound():
    received = 0

    def endless() -> bytes:
        nonlocal received
        received += 1000
        return b"HTTP/1.1 " + b"x" * 991

    with pytest.raises(Broken, match="too long"):
        ResponseReader(endless).head()
    assert received <= MOST_HEAD + 1000


def test_what_cannot_become_a_response_is_not_waited_for():
    said = [b"S", b"SH-2.0-OpenSSH_9.2"]
    with pytest.raises(Broken, match="no response of HTTP"):
        ResponseReader(lambda: said.pop(0)).head()


def test_a_body_that_says_it_is_too_long_is_not_read():
    said = [OK + b"Content-Length: 1001\r\n\r\n"]
    response = ResponseReader(lambda: said.pop(0))
    response.head()
    with pytest.raises(Broken, match="longer than 1000 bytes"):
        response.body(most=MOST)


@pytest.mark.parametrize("framing", [b"", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_without_an_end_is_held_no_further_than_the_bound(framing):
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
    said = [OK + framing + b"\r\n", *[chunk] * (MOST // 100 + 1)]
    response = ResponseReader(lambda: said.pop(0))
    response.head()
    with pytest.raises(Broken, match="longer than 1000 bytes"):
        response.body(most=MOST)


def test_what_receiving_raises_is_passed_on():
    def fail() -> bytes:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        ResponseReader(fail).head()
