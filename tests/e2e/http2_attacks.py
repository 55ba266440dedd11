"""Abuse by HTTP/2 clients: each attack sends valid frames until the server closes the connection, and says how it does.

The heads are literal fields, never indexed, so that they need no state and can be repeated.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

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
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, ENHANCE_YOUR_CALM = 1, 3, 6, 11


def literal(name: bytes, value: bytes) -> bytes:
    """Write a field, short of 127 bytes each."""
    return bytes([0x10, len(name)]) + name + bytes([len(value)]) + value


def block(port: int) -> bytes:
    """Write the head of a CONNECT."""
    return literal(b":method", b"CONNECT") + literal(b":authority", b"a.example:%d" % port)


def headers(stream: int, head: bytes, *flags: str) -> bytes:
    """Write a whole head."""
    return bytes(HeadersFrame(stream, data=head, flags=["END_HEADERS", *flags]).serialize())


def connect(stream: int, port: int) -> bytes:
    """Ask for a tunnel."""
    return headers(stream, block(port))


class Attack(NamedTuple):
    """`first` is sent once, then `again` for every further stream; both have the port of a target that echoes."""

    codes: set[int]
    """Errors that end the connection."""
    word: str
    """The reason that the server sends."""
    again: Callable[[int, int], bytes]
    first: Callable[[int], bytes] = lambda port: b""

    def bytes(self, port: int) -> Iterator[bytes]:
        """Yield what is sent after the preface."""
        start = self.first(port)
        yield start
        for stream in range(3 if start else 1, 1 << 20, 2):
            yield self.again(stream, port)


CALM = {ENHANCE_YOUR_CALM}
CALM_OR_FULL = {ENHANCE_YOUR_CALM, PROTOCOL_ERROR}
"""Of a slow server: too many streams at once."""
END = DataFrame(1, flags=["END_STREAM"]).serialize()
GET = literal(b":method", b"GET") + literal(b":scheme", b"https") + literal(b":path", b"/")
LARGE = Encoder().encode([("x", "y" * 4000)], huffman=False)
"""One large field, which is stored in the table and then referred to by one byte."""
LETTERS = Encoder().encode([NeverIndexedHeaderTuple("x", "e" * 16_000)])
"""As many letters in Huffman code as a head can have."""


def last_data(stream: int) -> bytes:
    """Write a byte, and the end of a stream."""
    return bytes(DataFrame(stream, data=b"x", flags=["END_STREAM"]).serialize())


def tunnel(port: int) -> bytes:
    """Ask for the first tunnel."""
    return connect(1, port)


ATTACKS: dict[str, Attack] = {
    "rapid reset": Attack(
        CALM, "resets", lambda s, port: connect(s, port) + RstStreamFrame(s, error_code=8).serialize()
    ),
    "resets caused by errors": Attack(
        {PROTOCOL_ERROR}, "", lambda s, port: connect(s, port) + b"\0\0\x04\x08\0" + s.to_bytes(4) + b"\0\0\0\0"
    ),
    "data after the end": Attack(CALM, "failed requests", lambda s, port: connect(s, port) + 2 * last_data(s)),
    "requests that are refused": Attack(CALM_OR_FULL, "", lambda s, port: connect(s, 1)),
    "too many streams": Attack({PROTOCOL_ERROR}, "Max inbound streams", connect),
    "requests that are not CONNECT": Attack(CALM_OR_FULL, "", lambda s, port: headers(s, GET, "END_STREAM")),
    "malformed requests": Attack(CALM_OR_FULL, "", lambda s, port: headers(s, literal(b"X", b"y"))),
    "empty continuations": Attack(
        CALM, "header block", lambda s, port: ContinuationFrame(1).serialize(), lambda port: HeadersFrame(1).serialize()
    ),
    "HPACK bomb": Attack(
        CALM,
        "",
        lambda s, port: headers(s, block(port) + b"\xbe" * 16_000),
        lambda port: headers(1, block(port) + LARGE),
    ),
    "heads in Huffman code": Attack(CALM_OR_FULL, "", lambda s, port: headers(s, block(port) + LETTERS)),
    "settings of tables and windows": Attack(
        CALM, "settings", lambda s, port: SettingsFrame(0, settings={1: s * 2048, 4: s}).serialize()
    ),
    "empty DATA": Attack(CALM, "empty DATA", lambda s, port: DataFrame(1).serialize(), tunnel),
    "padding alone": Attack(
        CALM, "empty DATA", lambda s, port: DataFrame(1, pad_length=255, flags=["PADDED"]).serialize(), tunnel
    ),
    "windows increased by one": Attack(
        CALM, "WINDOW_UPDATE", lambda s, port: WindowUpdateFrame(1, window_increment=1).serialize(), tunnel
    ),
    "windows that are too large": Attack(
        CALM,
        "failed requests",
        lambda s, port: connect(s, port) + WindowUpdateFrame(s, window_increment=WIDEST).serialize(),
    ),
    "more data than the window": Attack(
        {FLOW_CONTROL_ERROR, ENHANCE_YOUR_CALM},
        "",
        lambda s, port: DataFrame(1, data=bytes(16_384)).serialize(),
        lambda port: connect(1, 1),
    ),
    "garbage": Attack({PROTOCOL_ERROR, FRAME_SIZE_ERROR}, "", lambda s, port: bytes(range(256))),
    "second heads after the end": Attack(
        CALM, "failed requests", lambda s, port: connect(1, port), lambda port: connect(1, port) + END
    ),
    "heads after a reset": Attack(
        CALM, "resets", lambda s, port: connect(s, port) + RstStreamFrame(s).serialize() + connect(s, port)
    ),
    "trailers": Attack(
        CALM, "failed requests", lambda s, port: connect(s, port) + headers(s, literal(b"x", b"y"), "END_STREAM")
    ),
}
