"""Response heads: bytes in, a `ResponseHead` or a `ProtocolError` (502) out.

A head that two clients could read in two ways is refused, so values that an origin puts into its fields cannot split a
response. As in `request`, one expression accepts usual heads in one pass; the general grammar reads all others, and
alone refuses.
"""

import re

import msgspec

from headgate.errors import ProtocolError
from headgate.http.h1.syntax import (
    FIELD_LINES,
    FIELD_VALUE,
    TOKEN,
    find_stray_byte,
    named_lines,
    names_pattern,
    parse_connection,
    parse_framing,
)

NOTEWORTHY_FIELDS = (
    "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "upgrade",
    "x-request-id",  # written anew
)  # fmt: skip
"""The fields about framing and about this hop, which a recipient must not treat as opaque."""

# 9112 4: the reason may be empty; many origins omit the space before it, too.
_STATUS_LINE = rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: (" + FIELD_VALUE + rb"))?+\r\n"
_HEAD = re.compile(_STATUS_LINE + FIELD_LINES + rb"\r\n")
_BEGINNING = b"HTTP/1."
_NOTEWORTHY = named_lines(*NOTEWORTHY_FIELDS)
_DATE = re.compile(rb"\ndate:", re.IGNORECASE)

_OTHER_LINES = (
    rb"(?:(?!(?:" + names_pattern(NOTEWORTHY_FIELDS) + rb"):)" + TOKEN + rb":" + FIELD_VALUE + rb"\r\n)*+"
)  # fmt: skip
_KEEP_ALIVE_LINE = rb"[Cc]onnection: keep-alive\r\n"
_LENGTH_LINE = rb"[Cc]ontent-[Ll]ength: (0|[1-9][0-9]{0,17}+)\r\n"
_USUAL_HEAD = re.compile(
    rb"(HTTP/1\.1 ([2-5][0-9][0-9])(?: " + FIELD_VALUE + rb")?+\r\n" + _OTHER_LINES + rb")"
    # Connection may stand before the length or after it.
    + rb"(?:" + _KEEP_ALIVE_LINE + rb"(" + _OTHER_LINES + rb"))?+(" + _LENGTH_LINE + _OTHER_LINES + rb")"
    + rb"(?:" + _KEEP_ALIVE_LINE + rb"(" + _OTHER_LINES + rb"))?+\r\n"
)  # fmt: skip
_KEEP_ALIVE = frozenset({b"keep-alive"})
_NO_MEMBERS: frozenset[bytes] = frozenset()


class ResponseHead(msgspec.Struct, gc=False):
    """One response head, and its meaning for the connection."""

    status: int
    reason: bytes = b""
    lines: bytes = b""
    """The unchanged field lines, each with its CRLF; empty in a usual head, whose lines are in `forwardable`."""
    size: int = 0
    """Bytes of the head, its empty line included."""
    minor: int = 1
    """HTTP/1.`minor`: 0 or 1."""
    length: int = -1
    """The value of Content-Length; -1 if it is absent."""
    chunked: bool = False
    """Whether the body, if there is one, is chunked."""
    connection: frozenset[bytes] = frozenset()
    """The members of Connection, in lower case."""
    keep_alive: bool = True
    """Whether the origin's connection can be used again."""
    has_date: bool = False
    """Whether it has a Date."""
    websocket: bool = False
    """Whether the origin switches to WebSocket."""
    forwardable: bytes = b""
    """The status line and field lines of a usual head without Connection, which may be forwarded unchanged."""

    def has_body(self, method: bytes) -> bool:
        """Return whether a body follows in the response to a request with this method (9112 6.3, items 1 and 2)."""
        return not (method == b"HEAD" or self.status < 200 or self.status in {204, 304})


def parse_usual_response_head(data: bytes) -> ResponseHead | None:
    """Parse the head at the beginning of `data`; None unless it is complete and usual.

    A usual head is final, HTTP/1.1, has one Content-Length, Date, perhaps one `Connection: keep-alive`, and no other
    field of `NOTEWORTHY_FIELDS`.
    """
    match = _USUAL_HEAD.match(data)
    if match is None:
        return None
    before, status, between, with_length, length, after = match.groups()
    size = match.end()
    if data.find(b"\r\nDate: ", 0, size) < 0 and data.find(b"\r\ndate: ", 0, size) < 0:
        return None
    if between is None and after is None:
        members, forwardable = _NO_MEMBERS, before + with_length
    elif between is None or after is None:
        members, forwardable = _KEEP_ALIVE, before + (between or b"") + with_length + (after or b"")
    else:
        return None
    return ResponseHead(
        int(status), size=size, length=int(length), connection=members, has_date=True, forwardable=forwardable
    )


def parse_response_head(raw: bytes) -> ResponseHead:
    """Parse a complete head, including its empty line; raises `ProtocolError` (502)."""
    match = _HEAD.fullmatch(raw)
    if match is None:
        raise ProtocolError(502, "the origin's response has a malformed head")
    minor, status, reason = match.groups()
    start = raw.find(b"\r\n") + 2
    response = ResponseHead(int(status), reason or b"", raw[start:-2], len(raw), int(minor), keep_alive=minor == b"1")
    values: dict[bytes, list[bytes]] = {}
    for name, value in _NOTEWORTHY.findall(raw, start - 1):
        values.setdefault(name.lower(), []).append(value.rstrip(b"\t "))
    if values:
        try:
            response.length, response.chunked = parse_framing(values, response.minor)
            _read_connection(response, values)
        except ProtocolError as error:
            raise ProtocolError(502, f"in the origin's response, {error.reason}") from None
    response.has_date = _DATE.search(raw, start - 1) is not None
    return response


def check_response_start(data: bytes) -> None:
    """Check the beginning of a response head; raises `ProtocolError` (502) if it can never become one."""
    if not data.startswith(_BEGINNING[: len(data)]) or find_stray_byte(data):
        raise ProtocolError(502, "the origin's response is not HTTP/1.1 or HTTP/1.0")


def _read_connection(response: ResponseHead, values: dict[bytes, list[bytes]]) -> None:
    response.connection = members = parse_connection(values.get(b"connection", []))
    response.keep_alive = b"close" not in members and (response.minor == 1 or b"keep-alive" in members)
    if b"upgrade" in members and response.status == 101:
        response.websocket = [value.lower() for value in values.get(b"upgrade", [])] == [b"websocket"]
