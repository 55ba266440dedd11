"""Bodies: any split of the bytes reads the same, and every hostile one is refused however it is split."""

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ProtocolError
from headgate.http.h1 import BodyReader, ChunkedBody, LengthBody, UnboundedBody
from tests.unit.http.h1.hostile import BODIES, MARKER

CHUNKS = b"5;a=b\r\nhello\r\n00A\r\n0123456789\r\n0\r\nX-After: 1 \r\nY:\r\n\r\nrest"
CANONICAL = b"5\r\nhello\r\na\r\n0123456789\r\n"


def feed_all(body: BodyReader, data: bytes, cuts: list[int]) -> bytes:
    """Feed data cut at these places; return what is sent on, the rest put back together."""
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    sent = b""
    for start, end in pairwise(edges):
        piece = data[start:end]
        if body.done:
            body.rest += piece
        elif piece:
            sent += b"".join(body.feed(piece))
    return sent


cuts = st.lists(st.integers(0, 200), max_size=8)


@given(cuts)
def test_chunked_body_in_any_pieces_is_read_alike(places: list[int]) -> None:
    for framed, expected in ((True, CANONICAL), (False, b"hello0123456789")):
        body = ChunkedBody(framed=framed, max_trailers=100)
        assert feed_all(body, CHUNKS, places) == expected
        assert (body.done, body.rest, body.size) == (True, b"rest", 15)
        assert body.trailers == [(b"x-after", b"1"), (b"y", b"")]


@given(cuts, st.integers(0, 30))
def test_body_with_a_length_in_any_pieces_is_read_alike(places: list[int], length: int) -> None:
    data = bytes(range(30)) + b"rest"
    body = LengthBody(length)
    assert feed_all(body, data, places) == data[:length]
    assert (body.done, body.rest, body.size) == (True, data[length:], length)


def test_chunked_body_without_trailers_in_any_pieces_is_read_alike() -> None:
    data = b"5\r\nhello\r\n0\r\n\r\nrest"
    for cut in range(len(data)):
        body = ChunkedBody(framed=False, max_trailers=2)
        assert feed_all(body, data, [cut]) == b"hello", cut
        assert (body.done, body.rest, body.trailers) == (True, b"rest", []), cut


def test_unbounded_body_is_never_done() -> None:
    framed, bare = UnboundedBody(framed=True), UnboundedBody(framed=False)
    assert b"".join(framed.feed(b"hello")) == b"5\r\nhello\r\n"
    assert b"".join(bare.feed(b"hello")) == b"hello"
    assert not framed.done


def test_empty_piece_of_an_unbounded_body_is_not_written_as_a_chunk() -> None:
    """A head that arrives without any of its body must not end the body."""
    body = UnboundedBody(framed=True)
    assert body.feed(b"") == []
    assert b"".join(body.feed(b"hi")) == b"2\r\nhi\r\n"


def test_hostile_body_in_any_pieces_is_refused() -> None:
    for name, (message, status) in BODIES.items():
        data = message.split(b"\r\n\r\n", 1)[1] + MARKER
        for step in (1, 2, 3, 5, 10_000):
            body = ChunkedBody(framed=True, max_trailers=8192)
            with pytest.raises(ProtocolError) as caught:
                feed_all(body, data, list(range(0, len(data), step)))
            assert caught.value.status == status, name
            assert not body.done, name


def test_content_over_its_limit_is_413() -> None:
    body = ChunkedBody(framed=True, max_trailers=100, max_size=10)
    assert body.feed(b"a\r\n0123456789\r\n")
    with pytest.raises(ProtocolError) as caught:
        body.feed(b"1\r\n")
    assert caught.value.status == 413


def test_line_without_an_end_is_refused_at_its_limit() -> None:
    for beginning, limit in ((b"5;", 512), (b"0\r\nX:", 100)):
        body = ChunkedBody(framed=True, max_trailers=100)
        body.feed(beginning + b"a" * (limit - len(beginning)))
        with pytest.raises(ProtocolError):
            body.feed(b"a" * len(beginning) + b"a")


def test_overlong_trailers_in_one_piece_are_refused() -> None:
    body = ChunkedBody(framed=True, max_trailers=10)
    with pytest.raises(ProtocolError):
        body.feed(b"0\r\nX: 0123456789\r\n\r\n")


@given(
    st.lists(
        st.sampled_from([
            b"5\r\nhello\r\n", b"0\r\n\r\n", b"0\r\n", b"\r\n", b"5", b"a\r\n0123456789\r\n", b";x", b";x=\"y\"", b"\n",
            b"\r", b" ", b"00", b"X: y\r\n", b"hello", b"0x", b"F", b"1\r\n", b"\x00", b"g", b"-", b"+5",
        ]),
        max_size=8,
    )
)  # fmt: skip
def test_accepted_body_is_read_alike_by_h11(parts: list[bytes]) -> None:
    data = b"".join(parts)
    body = ChunkedBody(framed=False, max_trailers=8192)
    try:
        content = b"".join(body.feed(data))
    except ProtocolError:
        return
    machine = h11.Connection(h11.SERVER)
    machine.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    machine.next_event()
    theirs, ended = b"", False
    while (event := machine.next_event()) is not h11.NEED_DATA:
        if isinstance(event, h11.Data):
            theirs += event.data
        elif isinstance(event, h11.EndOfMessage):
            ended = True
            assert [(bytes(name), bytes(value)) for name, value in event.headers] == body.trailers
            break
    assert ended == body.done
    assert theirs == content
    if ended:
        assert machine.trailing_data[0] == body.rest
