"""What is read of a response to the question for advice is the same however it comes, and no bytes do any harm."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.agent.advice.response import Broken, ResponseReader

MOST = 64
OK = b"HTTP/1.1 200 OK\r\n"
BEGINNINGS = [b"", OK, OK + b"Content-Length: 5\r\n\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"]
ATOMS = [
    OK, b"HTTP/1.0 503\n", b"HTTP/1.1 103 Early\r\n", b"HTTP/1.1 204 No\r\n", b"HTTP/1.1 101 Switching\r\n",
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b";", b"\0", b"\xff", b"A: b\r\n", b" folded\r\n",
    b"Content-Length: 5\r\n", b"content-length: 5, 5\r\n", b"Content-Length: 6\r\n", b"Content-Length: five\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n",
    b"5\r\nhello\r\n", b"5;a=b\r\nhello\r\n", b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"hello", b"x" * 70,
]  # fmt: skip
RESPONSES = st.builds(
    lambda beginning, atoms: beginning + b"".join(atoms),
    st.sampled_from(BEGINNINGS),
    st.lists(st.sampled_from(ATOMS) | st.binary(max_size=4), max_size=12),
)


def read(chunks: list[bytes]) -> tuple[object, ...]:
    """Give the head and the body, as far as they are whole."""
    left = iter([*chunks, b""])
    response = ResponseReader(lambda: next(left))
    came: tuple[object, ...] = ()
    try:
        came = response.head()
        came += (response.body(most=MOST),)
    except Broken:
        pass
    return came


@given(RESPONSES, st.lists(st.integers(min_value=1, max_value=9), min_size=1))
def test_however_it_comes_it_is_read_alike(said, lengths):
    chunks, position = [], 0
    while position < len(said):
        length = lengths[len(chunks) % len(lengths)]
        chunks.append(said[position : position + length])
        position += length
    came = read(chunks)
    assert came == read([said] if said else [])
    if came:
        assert 200 <= came[0] <= 999
    if len(came) == 3:
        assert len(came[2]) <= MOST


@given(RESPONSES, st.data())
def test_a_body_that_does_not_end_with_the_connection_is_never_shorter(said, data):
    # Whoever is on the way can cut what comes, but not so that less of it counts as all, where the head says how much.
    cut = data.draw(st.integers(min_value=0, max_value=len(said)))
    whole, part = read([said] if said else []), read([said[:cut]] if cut else [])
    if len(whole) == 3 and len(part) == 3 and whole[:2] == part[:2] and ends_by_itself(whole):
        assert part[2] == whole[2]


def ends_by_itself(came: tuple[object, ...]) -> bool:
    return came[0] == 204 or any(name.lower() in {"content-length", "transfer-encoding"} for name, _ in came[1])
