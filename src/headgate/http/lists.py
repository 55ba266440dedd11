"""Fields as pairs of name and value: a name may have several lines, and a line several members.

Values are text, one character for a byte (the Fetch standard's isomorphic decode). No value raises.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

__all__ = ["Pairs", "lines_of", "split"]

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""The fields of a message in their order, names in any case, a name as often as it has lines."""

# Fetch, "collect an HTTP quoted string": it ends at the first quote that no backslash stands before, or with the text.
_QUOTED: Final = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_member = re.compile(rf'(?:[^",]++|{_QUOTED})*+', re.DOTALL).match


def lines_of(fields: Pairs, name: str) -> list[str]:
    """Return the value of each line of the field `name`, which is in lower case."""
    return [value for given, value in fields if given.lower() == name]


def split(lines: Iterable[str]) -> list[str]:
    """Split the lines of one field into its members at each comma that is not quoted.

    The Fetch standard's "get, decode, and split", of lines there is at least one of: they are one value, joined by
    commas, so that a quote left open in one line goes on in the next.
    """
    value = ", ".join(lines)
    members, position = [], 0
    while True:
        match = _member(value, position)
        assert match is not None  # an empty member matches
        members.append(match[0].strip("\t "))
        position = match.end()
        if position >= len(value):
            return members
        position += 1
