"""The grammar that field values share: lists, tokens (RFC 9110, section 5.6) and structured fields (RFC 9651).

Fields are pairs of name and value: a name may have several lines, and a line several members. Values are text, one
character per byte (the Fetch standard's isomorphic decode). No value raises.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""The fields of a message in their order, names in any case; a repeated field has one pair for each line."""

MAX_INTEGER: Final = 999_999_999_999_999
"""Largest Integer of a structured field (RFC 9651, section 3.3.1)."""

TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"  # noqa: S105  # a pattern, not a password
"""Pattern of a token, such as a field name or a method (RFC 9110, section 5.6.2)."""

LOWER_CASE_TOKEN: Final = TOKEN.replace("A-Z", "")
"""Pattern of a field name where upper case is not allowed, as in HTTP/2 and bundles."""

_TOKEN: Final = re.compile(TOKEN)
# Fetch, "collect an HTTP quoted string": it ends at the first quote without a backslash before it, or with the text.
_QUOTED: Final = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_MEMBER: Final = re.compile(rf'(?:[^",]++|{_QUOTED})*+', re.DOTALL)


def is_token(text: str) -> bool:
    """Return whether `text` is a token."""
    return _TOKEN.fullmatch(text) is not None


def lines_of(fields: Pairs, name: str) -> list[str]:
    """Return the value of each line of the field `name`, which is in lower case."""
    return [value for given, value in fields if given.lower() == name]


def join_fields(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the fields by name, the values of a repeated name joined by commas (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, value in fields:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def split_list(lines: Iterable[str]) -> list[str]:
    """Split the lines of one field into its members at each comma that is not quoted.

    The Fetch standard's "get, decode, and split", for at least one line: the lines are one value, joined by commas, so
    that a quoted string without its end continues in the next line.
    """
    value = ", ".join(lines)
    members, position = [], 0
    while True:
        match = _MEMBER.match(value, position)
        assert match is not None  # an empty member matches
        members.append(match[0].strip("\t "))
        position = match.end()
        if position >= len(value):
            return members
        position += 1


def sf_string(text: str) -> bytes:
    """Return `text` as a String: quoted, with `"` and `\\` escaped (RFC 9651, section 4.1.6).

    A String holds printable ASCII only, so every other character becomes the percent-encoded bytes of its UTF-8 form;
    a lone surrogate becomes `?`.
    """
    written = bytearray(b'"')
    for byte in text.encode("utf-8", "replace"):
        if byte in b'"\\':
            written += b"\\%c" % byte
        elif 0x20 <= byte <= 0x7E:
            written.append(byte)
        else:
            written += b"%%%02X" % byte
    return bytes(written + b'"')


def sf_integer(number: int) -> bytes:
    """Return `number` as an Integer, clamped to fifteen digits (RFC 9651, section 4.1.4)."""
    return b"%d" % max(-MAX_INTEGER, min(MAX_INTEGER, number))


def parameter(name: bytes, number: int) -> bytes:
    """Return the parameter `;name=number` of an item (RFC 9651, section 4.1.1.2)."""
    return b";" + name + b"=" + sf_integer(number)
