"""A request as HTTP/2 has it (RFC 9113, section 8.3): field lines in, a CONNECT or another method out, or `Malformed`.

This file knows nothing of frames. Whatever the HTTP/1.1 side would refuse in a head is refused here too.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from headgate.proxy.http1.head import LONGEST_HEAD, Malformed

__all__ = ["Request", "read_request"]

_name = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]++").fullmatch  # 8.2.1: no upper case
# 9110 5.5, and 8.2.1: no white space at either end.
_value = re.compile(rb"(?:[!-~\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*+(?<![\t ]))?)?").fullmatch
_visible = re.compile(rb"[!-~]++").fullmatch
_OF_THE_CONNECTION: Final = frozenset(  # 8.2.2
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_CONNECT: Final = frozenset({b":method", b":authority"})  # 8.5: and no :scheme, no :path
_OTHER: Final = frozenset({b":method", b":scheme", b":path"})
_LINE: Final = len(b": \r\n")


class Request(NamedTuple):
    """One request's head."""

    method: str
    authority: str
    """As received, visible ASCII; empty only where the method is not CONNECT."""
    path: str
    """With its query; empty for CONNECT."""
    fields: list[tuple[str, str]]
    """Those that are no pseudo-header fields, values as latin-1, in order."""


def read_request(lines: Sequence[tuple[bytes, bytes]]) -> Request:
    """Read the field lines of a request; raises `Malformed`."""
    pseudo: dict[bytes, bytes] = {}
    fields: list[tuple[str, str]] = []
    if sum(len(name) + len(value) + _LINE for name, value in lines) > LONGEST_HEAD:
        raise Malformed(f"the head is longer than {LONGEST_HEAD} bytes")
    for name, value in lines:
        if name.startswith(b":"):
            if fields or name in pseudo or not _visible(value):
                raise Malformed("a pseudo-header field is repeated, out of place, or no visible ASCII")
            pseudo[name] = value
        elif _name(name) is None or _value(value) is None:
            raise Malformed("a field has a name or a value that is none")
        elif name in _OF_THE_CONNECTION or (name == b"te" and value != b"trailers"):
            raise Malformed(f"{name.decode()} is a field of HTTP/1.1")
        else:
            fields.append((name.decode(), value.decode("latin-1")))
    method, authority, path = (pseudo.get(name, b"").decode() for name in (b":method", b":authority", b":path"))
    _check_pseudo(method, pseudo.keys())
    _check_framing(method, fields)
    return Request(method, authority, path, fields)


def _check_pseudo(method: str, names: AbstractSet[bytes]) -> None:
    if not (names == _CONNECT if method == "CONNECT" else _OTHER <= names <= _OTHER | _CONNECT):
        raise Malformed("a pseudo-header field is missing, or one too many")


def _check_framing(method: str, fields: Sequence[tuple[str, str]]) -> None:
    lengths = [value for name, value in fields if name == "content-length"]
    if len(lengths) > 1 or any(not value.isascii() or not value.isdecimal() for value in lengths):
        raise Malformed("Content-Length is not one plain number")
    if sum(name == "host" for name, _ in fields) > 1:
        raise Malformed("Host is repeated")
    if method == "CONNECT" and any(value.strip("0") for value in lengths):
        raise Malformed("CONNECT with a body")
