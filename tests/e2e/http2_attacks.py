"""Abuse by HTTP/2 clients: each attack sends valid frames until the server closes the connection, and says how it does.

The heads are literal fields, never indexed, so that they need no state and can be repeated.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpack import Encoder, NeverIndexedHeaderTuple
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WIDEST = (1 << 31) - 1
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR, ENHANCE_YOUR_CALM = 1, 3, 5, 6, 11


Bytes = Callable[[int], Iterator[bytes]]


@dataclass(frozen=True)
class Attack:
    """The bytes after the preface, for the port of a target that echoes, and the error that ends the connection."""

    bytes: Bytes
    codes: frozenset[int]
    word: str
    """The reason that the server sends."""


ATTACKS: dict[str, Attack] = {}


def attack(*codes: int, word: str = "") -> Callable[[Bytes], Bytes]:
    """Add an attack to the list."""

    def add(made: Bytes) -> Bytes:
        ATTACKS[made.__name__.replace("_", " ")] = Attack(made, frozenset(codes), word)
        return made

    return add


def literal(name: bytes, value: bytes) -> bytes:
    """Write a field, short of 127 bytes each."""
    return bytes([0x10, len(name)]) + name + bytes([len(value)]) + value


def block(port: int) -> bytes:
    """Write the head of a CONNECT."""
    return literal(b":method", b"CONNECT") + literal(b":authority", b"a.example:%d" % port)


def connect(stream: int, port: int) -> bytes:
    """Ask for a tunnel."""
    return bytes(HeadersFrame(stream, data=block(port), flags=["END_HEADERS"]).serialize())


def streams() -> Iterator[int]:
    """Return the numbers of a client's streams."""
    return iter(range(1, 1 << 20, 2))


@attack(ENHANCE_YOUR_CALM, word="resets")
def rapid_reset(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port) + RstStreamFrame(stream, error_code=8).serialize()


@attack(PROTOCOL_ERROR)
def resets_caused_by_errors(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port) + b"\0\0\x04\x08\0" + stream.to_bytes(4) + b"\0\0\0\0"


@attack(ENHANCE_YOUR_CALM, word="failed requests")
def data_after_the_end(port: int) -> Iterator[bytes]:
    for stream in streams():
        data = DataFrame(stream, data=b"x", flags=["END_STREAM"]).serialize()
        yield connect(stream, port) + data + data


@attack(ENHANCE_YOUR_CALM, PROTOCOL_ERROR)  # or too many streams at once
def requests_that_are_refused(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, 1)


@attack(PROTOCOL_ERROR, word="Max inbound streams")
def too_many_streams(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port)


@attack(ENHANCE_YOUR_CALM, PROTOCOL_ERROR)  # or too many streams at once
def requests_that_are_not_connect(port: int) -> Iterator[bytes]:
    head = literal(b":method", b"GET") + literal(b":scheme", b"https") + literal(b":path", b"/")
    for stream in streams():
        yield HeadersFrame(stream, data=head, flags=["END_HEADERS", "END_STREAM"]).serialize()


@attack(ENHANCE_YOUR_CALM, PROTOCOL_ERROR)  # or too many streams at once
def malformed_requests(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield HeadersFrame(stream, data=literal(b"X", b"y"), flags=["END_HEADERS"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="header block")
def empty_continuations(port: int) -> Iterator[bytes]:
    yield HeadersFrame(1).serialize()
    while True:
        yield ContinuationFrame(1).serialize()


@attack(ENHANCE_YOUR_CALM)
def hpack_bomb(port: int) -> Iterator[bytes]:
    """Store one large field in the table, and refer to it by one byte, 16,000 times in each head."""
    remembered = Encoder().encode([("x", "y" * 4000)], huffman=False)
    yield HeadersFrame(1, data=block(port) + remembered, flags=["END_HEADERS"]).serialize()
    for stream in range(3, 1 << 20, 2):
        yield HeadersFrame(stream, data=block(port) + b"\xbe" * 16_000, flags=["END_HEADERS"]).serialize()


@attack(ENHANCE_YOUR_CALM, PROTOCOL_ERROR)  # too many bytes of heads or, of a slow server, too many streams
def heads_in_huffman_code(port: int) -> Iterator[bytes]:
    """Write as many letters in Huffman code as a head can have."""
    letters = Encoder().encode([NeverIndexedHeaderTuple("x", "e" * 16_000)])
    for stream in streams():
        yield HeadersFrame(stream, data=block(port) + letters, flags=["END_HEADERS"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="settings")
def settings_of_tables_and_windows(port: int) -> Iterator[bytes]:
    for number in range(1 << 20):
        yield SettingsFrame(0, settings={1: number * 4096, 4: number}).serialize()


@attack(ENHANCE_YOUR_CALM, word="empty DATA")
def empty_data(port: int) -> Iterator[bytes]:
    yield connect(1, port)
    while True:
        yield DataFrame(1).serialize()


@attack(ENHANCE_YOUR_CALM, word="empty DATA")
def padding_alone(port: int) -> Iterator[bytes]:
    yield connect(1, port)
    while True:
        yield DataFrame(1, pad_length=255, flags=["PADDED"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="WINDOW_UPDATE")
def windows_increased_by_one(port: int) -> Iterator[bytes]:
    yield connect(1, port)
    while True:
        yield WindowUpdateFrame(1, window_increment=1).serialize()


@attack(ENHANCE_YOUR_CALM, word="failed requests")
def windows_that_are_too_large(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port) + WindowUpdateFrame(stream, window_increment=WIDEST).serialize()


@attack(FLOW_CONTROL_ERROR, ENHANCE_YOUR_CALM)
def more_data_than_the_window(port: int) -> Iterator[bytes]:
    yield connect(1, 1)
    while True:
        yield DataFrame(1, data=bytes(16_384)).serialize()


@attack(PROTOCOL_ERROR, FRAME_SIZE_ERROR)
def garbage(port: int) -> Iterator[bytes]:
    while True:
        yield bytes(range(256))


@attack(ENHANCE_YOUR_CALM, word="failed requests")
def second_heads_after_the_end(port: int) -> Iterator[bytes]:
    end = DataFrame(1, flags=["END_STREAM"]).serialize()
    yield connect(1, port) + end
    while True:
        yield connect(1, port)


@attack(ENHANCE_YOUR_CALM, word="resets")
def heads_after_a_reset(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port) + RstStreamFrame(stream).serialize() + connect(stream, port)


@attack(ENHANCE_YOUR_CALM, word="failed requests")
def trailers(port: int) -> Iterator[bytes]:
    for stream in streams():
        trailer = HeadersFrame(stream, data=literal(b"x", b"y"), flags=["END_HEADERS", "END_STREAM"]).serialize()
        yield connect(stream, port) + trailer
