"""The strict grammar of a request head that may be a CONNECT: bytes in, a `Head` out, or `Malformed`.

This file knows nothing of sockets. Whatever two recipients could read in two ways is malformed: a bare CR or LF, a
control byte, a folded line, white space where none belongs, a Content-Length and a body behind a CONNECT. What the
target means is for others to find out; here it is only visible ASCII.
"""

import re
from typing import NamedTuple

from headgate.errors import HeadgateError

__all__ = ["LONGEST_HEAD", "Head", "Malformed", "end_of_head", "parse_head"]

LONGEST_HEAD = 16384
"""Bytes of the longest head: a token, some fields of a browser's, and much room."""

_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
# 9110 5.5: field-vchar, SP, HTAB and obs-text; neither NUL nor any other control byte, and so no obs-fold.
_FIELD = _WORD + r":[\t\x20-\x7e\x80-\xff]*+\r\n"
# 9112 3: one space, no other white space.
_HEAD = re.compile(rf"({_WORD}) ([!-~]++) HTTP/1\.([01])\r\n((?:{_FIELD})*+)\r\n")
_FIRST_LINE = re.compile(rb"[!-~]++ [!-~]++ HTTP/1\.[01]\r\n")
_STRAY = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Malformed(HeadgateError):
    """A head that is none; what follows it cannot be told apart, so the connection ends. Never leaves the proxy."""


class Head(NamedTuple):
    """One request's head."""

    method: str
    target: str
    """As received."""
    fields: list[tuple[str, str]]
    """Name in lower case, value as latin-1 without the white space about it, in order."""
    keep_alive: bool
    """Whether the client may send another request on this connection."""
    has_body: bool
    """Whether a body follows, however it is framed."""


def end_of_head(buffer: bytes | bytearray, scanned: int = 0) -> int:
    """Return where the head at the buffer's beginning ends, its empty line included; 0 when it is not complete.

    Bytes before `scanned` have been looked at before. Raises `Malformed` for a beginning that can never become right:
    a wrong byte, a line end of another kind, or too much of it.
    """
    end = buffer.find(b"\r\n\r\n", max(0, scanned - 3)) + 4
    if 4 <= end <= LONGEST_HEAD:
        return end
    if end >= 4 or len(buffer) > LONGEST_HEAD:
        raise Malformed(f"the head is longer than {LONGEST_HEAD} bytes")
    if _STRAY.search(buffer, max(0, scanned - 1)):
        raise Malformed("a control byte, or a CR or LF alone")
    if b"\r\n" in buffer and not _FIRST_LINE.match(buffer):
        raise Malformed("the request line is malformed")
    return 0


def parse_head(raw: bytes) -> Head:
    """Read a whole head, its empty line included; raises `Malformed`."""
    match = _HEAD.fullmatch(raw.decode("latin-1"))
    if match is None:
        raise Malformed("the request line or a field line is malformed")
    method, target, minor, block = match.groups()
    fields = [_field(line) for line in block.split("\r\n")[:-1]]
    options, lengths, framed, hosts = "", [], False, 0
    for name, value in fields:
        if name == "host":
            hosts += 1
        elif name == "content-length":
            lengths.append(value)
        elif name == "transfer-encoding":
            framed = True
        elif name == "connection":
            options += f",{value.lower()}"
    if hosts > 1:
        # 9112 3.2. That it is there at all is not asked of a CONNECT, whose target says everything it could.
        raise Malformed("Host is repeated")
    if len(lengths) > 1 or any(not value.isascii() or not value.isdecimal() for value in lengths):
        raise Malformed("Content-Length is not one plain number")
    members = {option.strip("\t ") for option in options.split(",")}
    has_body = framed or any(value.strip("0") for value in lengths)
    if has_body and method == "CONNECT":
        # 9110 9.3.6: it has no content; and what follows the head would be a tunnel's to one reader, a body to another.
        raise Malformed("CONNECT with a body")
    keep_alive = "close" not in members and (minor == "1" or "keep-alive" in members)
    return Head(method, target, fields, keep_alive, has_body)


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip("\t ")
