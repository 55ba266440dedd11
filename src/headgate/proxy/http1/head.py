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
_NOTED = ("host", "content-length", "transfer-encoding", "connection")
"""The fields that mean something here."""
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
    lines = [line.partition(":") for line in block.split("\r\n")]
    del lines[-1]  # what is after the last CRLF: nothing
    fields = [(name.lower(), value.strip("\t ")) for name, _, value in lines]
    noted = [(name, value) for name, value in fields if name in _NOTED]
    lasts, has_body = minor == "1", False
    if len(noted) > 1 or (noted and noted[0][0] != "host"):  # few have more than that
        lasts, has_body = _meaning(noted, lasts=lasts)
    if has_body and method == "CONNECT":
        # 9110 9.3.6: it has no content; and what follows the head would be a tunnel's to one reader, a body to another.
        raise Malformed("CONNECT with a body")
    return Head(method, target, fields, lasts, has_body)


def _meaning(noted: list[tuple[str, str]], *, lasts: bool) -> tuple[bool, bool]:
    """Say what fields mean: whether the connection goes on, which it does or not where they say nothing, and whether a
    body follows. Raises `Malformed`."""
    values: dict[str, list[str]] = {name: [] for name in _NOTED}
    for name, value in noted:
        values[name].append(value)
    if len(values["host"]) > 1:
        # 9112 3.2. That it is there at all is not asked of a CONNECT, whose target says everything it could.
        raise Malformed("Host is repeated")
    lengths = values["content-length"]
    if len(lengths) > 1 or not all(value.isascii() and value.isdecimal() for value in lengths):
        raise Malformed("Content-Length is not one plain number")
    options = {option.strip("\t ").lower() for value in values["connection"] for option in value.split(",")}
    lasts = "close" not in options and (lasts or "keep-alive" in options)
    return lasts, bool(values["transfer-encoding"]) or any(value.strip("0") for value in lengths)
