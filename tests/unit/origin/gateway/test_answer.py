"""Heads of responses: what is passed on, and what is refused for the agent's sake."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.origin.gateway.answer import check_answer_beginning, parse_answer, trailer_lines
from headgate.origin.gateway.refusal import Refusal


def test_a_plain_answer_is_written_once() -> None:
    answer = parse_answer(b"HTTP/1.1 200 OK\r\nDate: d\r\ncontent-length: 3\r\nConnection: keep-alive\r\n\r\n")
    assert (answer.status, answer.length, answer.chunked, answer.keep_alive, answer.plain) == (
        200,
        3,
        False,
        True,
        True,
    )
    assert answer.whole == b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 3\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "keep_alive", "plain"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n", False, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n", False, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\ndate: d\r\n\r\n", True, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", True, False),  # the gateway's own date is never the same
        (b"HTTP/1.1 200 OK\r\n\r\n", True, False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", True, False),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", True, False),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", True, False),
    ],
)
def test_which_answers_are_plain(head: bytes, keep_alive: bool, plain: bool) -> None:
    answer = parse_answer(head)
    assert (answer.keep_alive, answer.plain) == (keep_alive, plain)


def test_fields_of_the_hop_are_dropped_and_date_is_not() -> None:
    answer = parse_answer(
        b"HTTP/1.1 200 OK\r\nDate: d\r\nConnection: date, x-mine, content-length\r\nX-Mine: 1\r\nKeep-Alive: 5\r\n"
        b"Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: 0\r\n\r\n"
    )
    assert answer.block == b"Date: d\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n"
    assert answer.length == 0


def test_trailers_that_would_change_the_message_are_dropped() -> None:
    trailers = [
        (b"x-checksum", b"1"),
        (b"content-length", b"5"),
        (b"transfer-encoding", b"chunked"),
        (b"set-cookie", b"a"),
    ]
    assert trailer_lines(trailers) == b"x-checksum: 1\r\n"


@pytest.mark.parametrize("beginning", [b"", b"H", b"HTTP/1.", b"HTTP/1.1 200 OK\r\nX: y\r"])
def test_a_beginning_that_may_go_on(beginning: bytes) -> None:
    check_answer_beginning(beginning)


@pytest.mark.parametrize("beginning", [b"X", b"HTTP/2", b"HTTP/1.1 200 OK\n", b"HTTP/1.1 200 OK\r\nX: \x00"])
def test_a_beginning_that_may_not(beginning: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        check_answer_beginning(beginning)
    assert caught.value.status == 502


@given(
    st.lists(
        st.sampled_from([
            b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 404 \r\n", b"HTTP/1.1 204\r\n", b"Content-Length: 5\r\n", b"X: y\r\n",
            b" z\r\n",
            b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5, 5\r\n", b"Connection: close\r\n", b"\n", b"\r",
            b"\x00",
            b"Content-Length : 3\r\n", b"A: \xff\r\n", b": x\r\n", b"\x0b",
        ]),
        max_size=6,
    )
)  # fmt: skip
def test_whatever_is_accepted_h11_accepts_with_the_same_meaning(parts: list[bytes]) -> None:
    head = b"".join(parts).split(b"\r\n\r\n")[0].removesuffix(b"\r\n") + b"\r\n\r\n"
    try:
        answer = parse_answer(head)
    except Refusal:
        return
    machine = h11.Connection(h11.CLIENT)
    machine.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    machine.send(h11.EndOfMessage())
    machine.receive_data(head)
    event = machine.next_event()
    assert isinstance(event, h11.Response)
    assert event.status_code == answer.status
    lengths = [value for name, value in event.headers if name == b"content-length"]
    assert lengths == ([b"%d" % answer.length] if answer.length >= 0 else [])
