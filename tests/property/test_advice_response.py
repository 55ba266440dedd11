"""What is read of a response to the request for advice is the same however it comes, and no bytes do any harm."""

import asyncio
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.fetch.fetcher import exchange

OK = b"HTTP/1.1 200 OK\r\n"
BEGINNINGS = [b"", OK, OK + b"Content-Length: 5\r\n\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"]
ATOMS = [
    OK, b"HTTP/1.0 503\n", b"HTTP/1.1 103 Early\r\n", b"HTTP/1.1 204 No\r\n", b"HTTP/1.1 101 Switching\r\n",
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b";", b"\0", b"\xff", b"A: b\r\n", b" folded\r\n",
    b"Content-Length: 5\r\n", b"content-length: 5, 5\r\n", b"Content-Length: 6\r\n", b"Content-Length: five\r\n",
    b"Content-Encoding: gzip\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n",
    b"5\r\nhello\r\n", b"5;a=b\r\nhello\r\n", b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"hello", b"x" * 70,
]  # fmt: skip
RESPONSES = st.builds(
    lambda beginning, atoms: beginning + b"".join(atoms),
    st.sampled_from(BEGINNINGS),
    st.lists(st.sampled_from(ATOMS) | st.binary(max_size=4), max_size=12),
)


class Pieces(asyncio.StreamReader):
    """Gives what comes in the pieces it comes in."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter([*pieces, b""])

    async def read(self, n: int = -1) -> bytes:
        return next(self._pieces)


def read(pieces: list[bytes]) -> AdviceResponse:
    """Give what is made of a response."""
    transport = SimpleNamespace(abort=lambda: None)
    writer = SimpleNamespace(write=lambda _: None, get_extra_info=lambda _: None, transport=transport)

    async def connect():
        return Pieces(pieces), writer

    async def fetch() -> AdviceResponse:
        return await exchange(connect, AdviceRequest("http://127.0.0.1/", ()), wanted=lambda *_: True)

    return asyncio.run(fetch())


@given(RESPONSES, st.lists(st.integers(min_value=1, max_value=9), min_size=1))
def test_however_it_comes_it_is_read_alike(said, lengths):
    pieces, position = [], 0
    while position < len(said):
        length = lengths[len(pieces) % len(lengths)]
        pieces.append(said[position : position + length])
        position += length
    response, whole = read(pieces), read([said] if said else [])
    # What is wrong may be worded otherwise: an end that came early shows sooner in one piece.
    assert response[:3] == whole[:3]
    assert bool(response.failure) == bool(whole.failure)
    assert response.status == 0 or 200 <= response.status <= 999


@given(RESPONSES, st.data())
def test_a_body_that_does_not_end_with_the_connection_is_never_shorter(said, data):
    # Whoever is on the way can cut what comes, but not so that less of it counts as all, where the head says how much.
    cut = data.draw(st.integers(min_value=0, max_value=len(said)))
    whole, part = read([said] if said else []), read([said[:cut]] if cut else [])
    if whole.body is not None and part.body is not None and whole[:2] == part[:2] and ends_by_itself(whole):
        assert part.body == whole.body


def ends_by_itself(response: AdviceResponse) -> bool:
    """Say whether the head tells where the body ends."""
    names = {name.lower() for name, _ in response.fields}
    return bool(names & {"content-length", "transfer-encoding"})
