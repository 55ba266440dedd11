"""Laws of HTTP/2: how bytes are split does not matter; flow control adds up; and whatever a client sends, only its own
connection can break."""

import asyncio
import itertools

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from headgate.proxy.limits import INITIAL_WINDOW, MAX_CONNECTION_WINDOW, FrameGuard, Http2Error, ReceiveWindow
from tests.e2e.http2_attacks import connect, literal
from tests.e2e.http2_client import PREFACE, bounded
from tests.e2e.tunnels import target_running, until
from tests.unit.proxy.connected import connected

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)


def header(length: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the header of a frame."""
    return length.to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4)


SETTLED = PREFACE + header(0, SETTINGS, 0, 0)
numbers = st.sampled_from([1, 1, 3, 5, 7, 2, 0])
words = st.one_of(st.sampled_from([0, 1, 65_535, 2**31 - 1]), st.integers(0, 2**32 - 1)).map(
    lambda word: word.to_bytes(4)
)
blocks = st.sampled_from([literal(b"x", b"y"), literal(b":method", b"CONNECT"), b"\x82\x87\x84", b"\xff\xff", b""])
plain = st.sampled_from([0, 1, 4, 5])


def frame(kind: int, flags: st.SearchStrategy[int], stream: st.SearchStrategy[int], payload: object) -> object:
    return st.builds(
        lambda flags, stream, payload: header(len(payload), kind, flags, stream) + payload, flags, stream, payload
    )


every = st.one_of(
    frame(DATA, st.sampled_from([0, 1, 8, 9]), numbers, st.binary(max_size=300)),
    frame(HEADERS, st.sampled_from([0, 1, 4, 5, 4, 5, 12, 36]), numbers, blocks),
    frame(CONTINUATION, plain, numbers, blocks),
    frame(RST_STREAM, plain, numbers, words),
    frame(WINDOW_UPDATE, plain, numbers, words),
    frame(SETTINGS, st.just(0), st.just(0), st.builds(lambda word: b"\0\x04" + word, words)),
    frame(SETTINGS, st.just(1), st.just(0), st.just(b"")),
    frame(PING, st.sampled_from([0, 1]), st.just(0), st.just(b"12345678")),
    frame(PRIORITY, plain, numbers, st.binary(min_size=5, max_size=5)),
    frame(GOAWAY, plain, st.just(0), st.binary(min_size=8, max_size=20)),
    frame(PUSH_PROMISE, plain, numbers, blocks),
    frame(0xBE, plain, numbers, st.binary(max_size=300)),
)
streams = st.lists(every, max_size=30).map(b"".join)


def found(raw: bytes, cuts: list[int]) -> tuple[bytes, str]:
    """Return what is left of the bytes, and how they end."""
    guard, whole = FrameGuard(lambda stream: stream == 5), b""
    ends = sorted({cut % (len(raw) + 1) for cut in cuts} | {0, len(raw)})
    try:
        for start, end in itertools.pairwise(ends):
            for piece in guard.filter(memoryview(raw)[start:end], now=0.0):
                whole += piece
    except Http2Error as violation:
        return b"", str(violation)
    return whole, "incomplete" if guard.incomplete else ""


@given(streams, st.lists(st.integers(0, 10_000), max_size=20))
def test_any_split_is_read_the_same(raw: bytes, cuts: list[int]) -> None:
    assert found(SETTLED + raw, cuts) == found(SETTLED + raw, [])


@given(st.binary(max_size=2000), st.lists(st.integers(0, 10_000), max_size=5), st.booleans())
def test_whatever_bytes_are_frames_or_a_violation(raw: bytes, cuts: list[int], settled: bool) -> None:
    raw = SETTLED + raw if settled else raw
    passed, end = found(raw, cuts)
    if end != "incomplete":  # else the begin of a header may be held back
        assert (passed, end) == found(raw, [])


@given(st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 40_000), st.integers(-10, 1 << 20)), max_size=200))
def test_windows_add_up(turns: list[tuple[int, int, int]]) -> None:
    """What may still be sent and what is kept stay within the limit, and are never less than half of it."""
    receiving, allowed, kept = ReceiveWindow(MAX_CONNECTION_WINDOW), INITIAL_WINDOW, 0
    for sent, gone, growth in turns:
        count = min(sent, allowed)
        receiving.receive(count)
        allowed -= count
        kept = max(0, kept + count - gone)
        told = receiving.update(kept, growth=growth)
        assert told >= 0
        allowed += told
        assert allowed + kept <= receiving.limit <= MAX_CONNECTION_WINDOW
        assert allowed + kept > receiving.limit // 2 - 1


@hypothesis.settings(max_examples=60)
@given(streams, st.lists(st.integers(0, 10_000), max_size=3), st.booleans())
def test_nothing_breaks_more_than_its_own_connection(raw: bytes, cuts: list[int], opened: bool) -> None:
    async def check() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: errors.append(what))
        async with target_running() as port, connected(client={"greet": False}) as pair:
            begun = SETTLED + (connect(1, port) + connect(3, port) if opened else b"") + raw
            ends = sorted({cut % len(begun) for cut in cuts} | {0, len(begun)})
            for start, end in itertools.pairwise(ends):
                pair.client.send(begun[start:end])
                await asyncio.sleep(0)
            pair.client.send(header(8, 6, 0, 0) + b"12345678")
            await until(lambda: pair.client.pings or pair.client.goaways or pair.connection._guard.incomplete)
            pair.client.writer.close()
            await until(lambda: not pair.server.connections)
            assert (pair.server.tunnel_count, pair.server.loop_state.buffered, pair.server.tunnels.open) == (
                0,
                0,
                set(),
            )
        assert errors == []

    asyncio.run(bounded(check()))
