"""An advice response is read alike in any pieces, and no bytes raise an unexpected error."""

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


class PieceReader(asyncio.StreamReader):
    """Returns given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter([*pieces, b""])

    async def read(self, n: int = -1) -> bytes:
        return next(self._pieces)


def read(pieces: list[bytes]) -> AdviceResponse:
    """Return the response that is read from pieces."""
    transport = SimpleNamespace(abort=lambda: None)
    writer = SimpleNamespace(write=lambda _: None, get_extra_info=lambda _: None, transport=transport)

    async def connect():
        return PieceReader(pieces), writer

    async def fetch() -> AdviceResponse:
        return await exchange(connect, AdviceRequest("http://127.0.0.1/", ()), wanted=lambda *_: True)

    return asyncio.run(fetch())


@given(RESPONSES, st.lists(st.integers(min_value=1, max_value=9), min_size=1))
def test_response_in_any_pieces_is_read_alike(raw, lengths):
    pieces, position = [], 0
    while position < len(raw):
        length = lengths[len(pieces) % len(lengths)]
        pieces.append(raw[position : position + length])
        position += length
    response, whole = read(pieces), read([raw] if raw else [])
    # The failure may differ: an early end is found sooner in one piece.
    assert response[:3] == whole[:3]
    assert bool(response.failure) == bool(whole.failure)
    assert response.status == 0 or 200 <= response.status <= 999


@given(RESPONSES, st.data())
def test_incomplete_body_is_never_accepted(raw, data):
    # A connection can be cut at any byte; if the head states the length, a shorter body never counts as complete.
    cut = data.draw(st.integers(min_value=0, max_value=len(raw)))
    whole, part = read([raw] if raw else []), read([raw[:cut]] if cut else [])
    if whole.body is not None and part.body is not None and whole[:2] == part[:2] and ends_by_itself(whole):
        assert part.body == whole.body


def ends_by_itself(response: AdviceResponse) -> bool:
    """Return whether the head states where the body ends."""
    names = {name.lower() for name, _ in response.fields}
    return bool(names & {"content-length", "transfer-encoding"})
