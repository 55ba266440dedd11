"""The strict grammar of a response's head, and what of it is passed on.

This file knows nothing of sockets. An origin is believed in what it says, not in how it says it: a head that two
agents could read in two ways is refused as 502, so no response is ever split by what an origin let into its fields.
"""

import re

from headgate.origin.gateway.grammar import FIELD_LINES, check_length, lines_named, options
from headgate.origin.gateway.refusal import Refusal

__all__ = ["HOP_BY_HOP", "Answer", "check_answer_beginning", "parse_answer", "trailer_lines"]

# 9112 4: the reason may be empty; the space before it may be missing too, in what many origins send.
_HEAD = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*+))?\r\n(" + FIELD_LINES + rb")\r\n")
_STRAY = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BEGINNING = b"HTTP/1."

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade",
})  # fmt: skip
"""Fields that end at this hop whether Connection names them or not (9110 7.6.1)."""

_NOTEWORTHY = lines_named(
    "content-length", "connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"
)
_DROPPED = HOP_BY_HOP | {b"content-length"}
_DATE = re.compile(rb"\ndate:", re.IGNORECASE)
_NOT_REMOVED = frozenset({b"content-length", b"transfer-encoding", b"host", b"date"})
_NOT_IN_TRAILERS = HOP_BY_HOP | {
    b"content-length", b"content-encoding", b"content-type", b"content-range", b"host", b"trailer", b"set-cookie",
    b"cache-control", b"expires", b"location", b"www-authenticate", b"authorization", b"vary", b"date", b"age",
    b"retry-after",
}  # fmt: skip


class Answer:
    """One response's head, rewritten for the agent."""

    __slots__ = (
        "block", "chunked", "dated", "keep_alive", "length", "line", "minor", "plain", "status", "upgrade", "whole",
    )  # fmt: skip

    def __init__(self, line: bytes, status: int, minor: int) -> None:
        self.line = line
        """The status line to send, with its CRLF: always HTTP/1.1, our own version (9110 6.2)."""
        self.status = status
        self.minor = minor
        self.block = b""
        """The field lines to send, without those about framing and connection."""
        self.length = -1
        """What Content-Length says; -1 when it is absent."""
        self.chunked = False
        """Whether the body, if there is one, is chunked."""
        self.keep_alive = minor == 1
        """Whether the origin's connection can be used again."""
        self.dated = False
        """Whether it says when it was made."""
        self.upgrade = False
        """Whether the origin agrees to speak WebSocket."""
        self.plain = False
        """Whether `whole` is right: a dated final answer with a length, that can have a body, on a connection that
        stays."""
        self.whole = b""
        """The whole head to send to an HTTP/1.1 agent whose connection stays too."""

    def has_body(self, method: bytes) -> bool:
        """Whether a body follows when the request's method was `method` (9112 6.3, items 1 and 2)."""
        return not (method == b"HEAD" or self.status < 200 or self.status in {204, 304})


def parse_answer(head: bytes) -> Answer:
    """Read a whole response head, its empty line included; raises `Refusal` (502)."""
    match = _HEAD.fullmatch(head)
    if match is None:
        raise Refusal(502, "the origin's response has a malformed head")
    minor, status, reason, block = match.groups()
    answer = Answer(b"HTTP/1.1 %b %b\r\n" % (status, reason or b""), int(status), int(minor))
    special: dict[bytes, list[bytes]] = {}
    for name, value in _NOTEWORTHY.findall(head, match.start(4) - 1):
        special.setdefault(name.lower(), []).append(value.rstrip(b"\t "))
    if special:
        try:
            members = options(special.get(b"connection", []))
            _read_special(answer, special, members)
        except Refusal as refusal:
            raise Refusal(502, f"in the origin's response, {refusal.reason}") from None
        block = _without(block, _DROPPED | members - _NOT_REMOVED if members else _DROPPED)
    answer.block = block
    answer.dated = _DATE.search(head, match.start(4) - 1) is not None
    answer.plain = answer.length >= 0 and answer.keep_alive and answer.dated and answer.has_body(b"GET")
    if answer.plain:
        answer.whole = b"%b%bContent-Length: %d\r\n\r\n" % (answer.line, block, answer.length)
    return answer


def check_answer_beginning(buffer: bytes) -> None:
    """Refuse what can never become a response head; raises `Refusal` (502)."""
    if not buffer.startswith(_BEGINNING[: len(buffer)]) or _STRAY.search(buffer):
        raise Refusal(502, "the origin's response is not HTTP/1.1 or HTTP/1.0")


def trailer_lines(trailers: list[tuple[bytes, bytes]]) -> bytes:
    """Write the trailers to pass on: all but those that would change how the message is read (9110 6.5.1)."""
    return b"".join([b"%b: %b\r\n" % field for field in trailers if field[0] not in _NOT_IN_TRAILERS])


def _without(block: bytes, dropped: frozenset[bytes]) -> bytes:
    """Leave out the lines with these names."""
    lines = block.split(b"\r\n")
    return b"\r\n".join([line for line in lines if line.partition(b":")[0].lower() not in dropped])


def _read_special(answer: Answer, special: dict[bytes, list[bytes]], members: frozenset[bytes]) -> None:
    lengths, encodings = special.get(b"content-length"), special.get(b"transfer-encoding")
    if encodings is not None:
        if lengths is not None:
            raise Refusal(502, "both Content-Length and Transfer-Encoding")
        if not answer.minor or len(encodings) > 1 or encodings[0].lower() != b"chunked":
            raise Refusal(502, "Transfer-Encoding is not chunked alone")
        answer.chunked = True
    elif lengths is not None:
        if len(lengths) > 1:
            raise Refusal(502, "Content-Length is repeated")
        answer.length = check_length(lengths[0])
    if members:
        answer.keep_alive = b"close" not in members and (answer.minor == 1 or b"keep-alive" in members)
        if b"upgrade" in members and answer.status == 101:
            answer.upgrade = [value.lower() for value in special.get(b"upgrade", [])] == [b"websocket"]
