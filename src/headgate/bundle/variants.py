"""Variants and variant keys (draft-ietf-httpbis-variants-05): reading and writing them, and choosing by a request.

The syntax is the list of lists of draft-ietf-httpbis-header-structure-10, section 3.3, whose members are tokens and
strings. How a value is chosen is the draft's section 4; how the values of one axis are sorted is in
`headgate.bundle.negotiation`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from msgspec import Struct

from headgate.bundle.negotiation import MECHANISMS, Sorter
from headgate.errors import ConfigurationError

MAX_KEYS: Final = 10_000
"""Variant keys that one URL may have here."""

MAX_TOTAL_KEYS: Final = 1_000_000
"""Variant keys that all URLs of a bundle may have here together."""

MAX_KEY_TEXT: Final = 1 << 20
"""Characters that the variant keys of one URL may have here, all together.

Each key repeats its values, so that without a bound an entry of 100 kB claims keys of a gigabyte.
"""

_MAX_COUNT: Final = (1 << 64) - 1

_BARE: Final = r"[A-Za-z][A-Za-z0-9_\-.:%*/]*+"
_QUOTED: Final = r'"([ !#-\[\]-~]*+(?:\\["\\][ !#-\[\]-~]*+)*+)"'
_MEMBER = re.compile(rf"(?:({_BARE})|{_QUOTED})[ \t]*+(?:([,;])[ \t]*+|\Z)")
"""One list-member, and what ends it: a separator, or the whole value."""
_is_bare = re.compile(_BARE).fullmatch
_is_printable = re.compile(r"[ -~]*+").fullmatch


class Axis(Struct, frozen=True):
    """One variant-axis: the request field that a resource varies on, and the values there are for it."""

    name: str
    """As written; field names are compared without regard to case."""
    values: tuple[str, ...]
    """The available-values, the first of which is the default."""


def parse_variants(value: str) -> tuple[Axis, ...] | None:
    """Parse a Variants field value such as `Accept-Encoding;gzip;br, Accept-Language;en;fr`; None if it is invalid.

    Only lists of lists of tokens and strings are valid: a number (`1`), a Boolean (`?1`) or a byte sequence (`*aGk=*`)
    "has the wrong type", and a language range `*` is a string only when quoted. An axis without values makes no keys,
    and one whose name is not that of a field matches no mechanism (section 2).
    """
    lists = _parse(value)
    return None if lists is None else tuple(Axis(name, tuple(values)) for name, *values in lists)


def write_variants(axes: Iterable[Axis]) -> str:
    """Return the field value of `axes`; raises `ConfigurationError` for a value that cannot be written."""
    return ", ".join(write_key((axis.name, *axis.values)) for axis in axes)


def parse_key(text: str) -> tuple[str, ...] | None:
    """Parse one variant key such as `gzip; ja`: a value for each axis. None if it is invalid, or several keys."""
    lists = _parse(text)
    return tuple(lists[0]) if lists is not None and len(lists) == 1 else None


def write_key(values: Iterable[str]) -> str:
    """Return a variant key in the form in which keys are compared: `gzip;ja`.

    A value is a token if possible, else a string. Raises `ConfigurationError` for one that is neither.
    """
    return ";".join(map(_write, values))


def count_keys(axes: Iterable[Axis]) -> int:
    """Count the possible variant keys without making them; what is more than 2**64 - 1 counts as that."""
    count = 1
    for axis in axes:
        count = min(count * len(axis.values), _MAX_COUNT)
    return count


def measure_keys(axes: Sequence[Axis]) -> int:
    """Count the characters of all variant keys together without making them; at most 2**64 - 1, as `count_keys`."""
    count = count_keys(axes)
    if not count:
        return 0
    values = sum(count // len(axis.values) * sum(len(_write(value)) for value in axis.values) for axis in axes)
    return min(values + count * (len(axes) - 1), _MAX_COUNT)


def variant_keys(axes: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the possible variant keys of axes with these values, in row-major order (3.3.1 step 4.4.2).

    A value that an axis has twice gives the same key twice.
    """
    return map(";".join, product(*(map(_write, values) for values in axes)))


def select_key(axes: Sequence[Axis], request_headers: Mapping[str, str]) -> str | None:
    """Choose the key that answers a request best, by section 4 of the draft; None where none does.

    The names in `request_headers` come in any case. Without a mechanism for the field of an axis the result is
    None: a key must have a value for each axis (section 3).
    """
    fields: dict[str, str] = {}
    for name, value in request_headers.items():
        known = name.lower()
        fields[known] = f"{fields[known]}, {value}" if known in fields else value
    sorters: dict[str, Sorter] = {}
    chosen: list[str] = []
    for axis in axes:
        name = axis.name.lower()
        if name not in MECHANISMS:
            return None
        if name not in sorters:
            sorters[name] = MECHANISMS[name](fields.get(name))
        # A bundle has a response for each combination of values. So the first of the Possible Keys (section 4.1) that
        # it has is made of each axis's first value; only identity may be sorted in without being a value.
        best = next((value for value in sorters[name](axis.values) if value in axis.values), None)
        if best is None:
            return None
        chosen.append(best)
    return write_key(chosen)


def _parse(text: str) -> list[list[str]] | None:
    """Parse a list of lists whose members are tokens and strings (header-structure-10, section 4.2.4); None on failure.

    A token "is interpreted as a string containing the same characters".
    """
    lists: list[list[str]] = [[]]
    position = len(text) - len(text.lstrip(" \t"))
    while member := _MEMBER.match(text, position):
        bare, quoted, separator = member.groups()
        lists[-1].append(re.sub(r"\\(.)", r"\1", quoted) if bare is None else bare)
        if separator is None:
            return lists
        if separator == ",":
            lists.append([])
        position = member.end()
    return None


def _write(value: str) -> str:
    if _is_bare(value):
        return value
    if not _is_printable(value):
        raise ConfigurationError(f"{value!r} cannot be a variant's value; expected printable ASCII")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
