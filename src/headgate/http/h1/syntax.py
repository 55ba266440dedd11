"""The parts of heads and trailers: tokens, field lines, and the few fields with a grammar of their own.

Every repetition is possessive, so matching takes time linear in the input.
"""

import re
from collections.abc import Mapping, Sequence

from headgate.errors import ProtocolError
from headgate.http import fields

TOKEN = fields.TOKEN.encode()

FIELD_VALUE = rb"[\t\x20-\x7e\x80-\xff]*+"
"""9110 5.5: field-vchar, SP, HTAB and obs-text; neither NUL nor any other control byte, and so no obs-fold."""

FIELD_LINES = rb"(?:" + TOKEN + rb":" + FIELD_VALUE + rb"\r\n)*+"
"""Field lines, each with its CRLF."""

HOST = rb"(?:[A-Za-z0-9\-._~%!$&'()*+;=]++|\[[0-9A-Fa-f:.]++\])(?::[0-9]{0,5}+)?+"
"""9110 7.2: uri-host [ ":" port ]. A comma would be a list of hosts, "@" user information."""

_HOST = re.compile(HOST)
_TOKEN = re.compile(TOKEN)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_STRAY = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_CONNECTION_SIZE = 2048
"""Bytes: a head of 32 KiB could have 16,000 members, and each costs as much as a field."""
_USUAL_OPTIONS = frozenset({b"keep-alive", b"close", b"upgrade"})


def find_stray_byte(data: bytes | bytearray, start: int = 0) -> bool:
    """Return whether a control byte, or a CR or LF alone, comes at or after `start`.

    A CR at the end may be the first half of a CRLF, and does not count.
    """
    return _STRAY.search(data, max(0, start)) is not None


def names_pattern(names: Sequence[str]) -> bytes:
    """Return the pattern of these field names in any case, with "_" or "-" for "-"; "*" stands for any rest.

    A name's first letter is a set of its own, so that a search skips most lines after one comparison.
    """
    patterns = []
    for name in names:
        first, rest = name[0], name[1:].replace("-", "[-_]").replace("*", "[^:]*+")
        patterns.append(f"[{first}{first.upper()}](?i:{rest})")
    return "|".join(patterns).encode()


def named_lines(*names: str) -> re.Pattern[bytes]:
    """Compile the pattern that finds the lines with these names in a block preceded by LF: (name, value)."""
    return re.compile(rb"\n(" + names_pattern(names) + rb"):[\t ]*+([^\r]*+)")


def split_fields(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Split lines that fit `FIELD_LINES`: (name in lower case, value without surrounding whitespace)."""
    parts = [line.partition(b":") for line in lines.split(b"\r\n")]
    del parts[-1]  # after the last CRLF
    return [(name.lower(), value.strip(b"\t ")) for name, _, value in parts]


def parse_connection(values: list[bytes]) -> frozenset[bytes]:
    """Return the members of Connection in lower case; raises `ProtocolError` where one is not a token (9110 7.6.1)."""
    if len(values) == 1 and values[0].lower() in _USUAL_OPTIONS:
        return frozenset([values[0].lower()])
    if sum(map(len, values)) > _MAX_CONNECTION_SIZE:
        raise ProtocolError(431, f"Connection is longer than {_MAX_CONNECTION_SIZE} bytes")
    members = frozenset(member.strip(b"\t ").lower() for value in values for member in value.split(b",")) - {b""}
    if not all(_TOKEN.fullmatch(member) for member in members):
        raise ProtocolError(400, "a member of Connection is not a token")
    return members


def parse_content_length(value: bytes) -> int:
    """Read a Content-Length: one value of at most 18 digits (9110 8.6); raises `ProtocolError`."""
    if not _LENGTH.fullmatch(value):
        raise ProtocolError(400, "Content-Length is not one plain number")
    return int(value)


def parse_framing(values: Mapping[bytes, list[bytes]], minor: int) -> tuple[int, bool]:
    """Return the value of Content-Length, -1 when absent, and whether the body is chunked.

    `values` has the values of each field by name, in lower case; `minor` is that of the message's version. Raises
    `ProtocolError` for all that two recipients could read in two ways (9112 6.1 and 6.3).
    """
    lengths, encodings = values.get(b"content-length"), values.get(b"transfer-encoding")
    if encodings is not None:
        if lengths is not None:
            raise ProtocolError(400, "both Content-Length and Transfer-Encoding")
        if not minor:
            raise ProtocolError(400, "Transfer-Encoding in an HTTP/1.0 message")
        if len(encodings) > 1 or encodings[0].lower() != b"chunked":
            raise ProtocolError(400, "Transfer-Encoding is not chunked alone")
        return -1, True
    if lengths is None:
        return -1, False
    if len(lengths) > 1:
        raise ProtocolError(400, "Content-Length is repeated")
    return parse_content_length(lengths[0]), False


def is_host_and_port(value: bytes) -> bool:
    """Return whether `value` is a valid Host: one host, and optionally a port."""
    return _HOST.fullmatch(value) is not None
