"""A request in HTTP/2 (RFC 9113, section 8.3): field lines in, a `Request` out, or `MalformedRequest`.

This file knows no frames. A head that is malformed in HTTP/1.1 is malformed here too.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from headgate.errors import HeadgateError
from headgate.proxy.http2.engine import MAX_HEAD_SIZE

_name = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]++").fullmatch  # 8.2.1: no upper case
# 9110 5.5, and 8.2.1: no whitespace at either end.
_value = re.compile(rb"(?:[!-~\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*+(?<![\t ]))?)?").fullmatch
_visible = re.compile(rb"[!-~]++").fullmatch
_CONNECTION_FIELDS: Final = frozenset(  # 8.2.2
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_CONNECT_PSEUDO_FIELDS: Final = frozenset({b":method", b":authority"})  # 8.5: and no :scheme, no :path
_PSEUDO_FIELDS: Final = frozenset({b":method", b":scheme", b":path"})
_LINE_OVERHEAD: Final = len(b": \r\n")


class MalformedRequest(HeadgateError):
    """A malformed request head. Never leaves the proxy."""


class Request(NamedTuple):
    """A request head."""

    method: str
    authority: str
    """As received, visible ASCII; may be empty unless the method is CONNECT."""
    path: str
    """With its query; empty for CONNECT."""
    fields: list[tuple[str, str]]
    """Without pseudo-header fields, values as latin-1, in order."""


def parse_request(lines: Sequence[tuple[bytes, bytes]]) -> Request:
    """Parse the field lines of a request; raises `MalformedRequest`."""
    pseudo: dict[bytes, bytes] = {}
    fields: list[tuple[str, str]] = []
    if sum(len(name) + len(value) + _LINE_OVERHEAD for name, value in lines) > MAX_HEAD_SIZE:
        raise MalformedRequest(f"the head is larger than {MAX_HEAD_SIZE} bytes")
    for name, value in lines:
        if name.startswith(b":"):
            if fields or name in pseudo or not _visible(value):
                raise MalformedRequest("a pseudo-header field is repeated, out of place, or not visible ASCII")
            pseudo[name] = value
        elif _name(name) is None or _value(value) is None:
            raise MalformedRequest("invalid field name or value")
        elif name in _CONNECTION_FIELDS or (name == b"te" and value != b"trailers"):
            raise MalformedRequest(f"{name.decode()} is not allowed in HTTP/2")
        else:
            fields.append((name.decode(), value.decode("latin-1")))
    method, authority, path = (pseudo.get(name, b"").decode() for name in (b":method", b":authority", b":path"))
    _check_pseudo(method, pseudo.keys())
    _check_framing(method, fields)
    return Request(method, authority, path, fields)


def _check_pseudo(method: str, names: AbstractSet[bytes]) -> None:
    if not (
        names == _CONNECT_PSEUDO_FIELDS
        if method == "CONNECT"
        else _PSEUDO_FIELDS <= names <= _PSEUDO_FIELDS | _CONNECT_PSEUDO_FIELDS
    ):
        raise MalformedRequest("a pseudo-header field is missing or unexpected")


def _check_framing(method: str, fields: Sequence[tuple[str, str]]) -> None:
    lengths = [value for name, value in fields if name == "content-length"]
    if len(lengths) > 1 or any(not value.isascii() or not value.isdecimal() for value in lengths):
        raise MalformedRequest("Content-Length is not one number")
    if sum(name == "host" for name, _ in fields) > 1:
        raise MalformedRequest("Host is repeated")
    if method == "CONNECT" and any(value.strip("0") for value in lengths):
        raise MalformedRequest("CONNECT with a body")
