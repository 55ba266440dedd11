"""Variants and variant keys (draft-ietf-httpbis-variants-05): read and write them, and choose one for a request.

The syntax is the list of lists of draft-ietf-httpbis-header-structure-10, section 3.3, whose members are tokens and
strings. A key is chosen by the draft's section 4.

Three request fields sort the values of an axis (appendix A): Accept, Accept-Encoding and Accept-Language. Each function
takes the field's value, or None for a request without that field, and returns a sorter: from the axis's
available-values to those "suitable for the request, in order of preference" (section 6). A sorter takes time
proportional to its input, for any input. Where the appendix defers to HTTP, RFC 9110 is meant: what a more specific
member refuses with a weight of 0, a wider one (`*/*`, `text/*`, `en`, `*`) does not bring back. Members of equal weight
are preferred in the field's order.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias

from msgspec import Struct

from headgate.errors import fail_if
from headgate.http.fields import join_fields
from headgate.http.media_type import parse_weights

Sorter: TypeAlias = Callable[[Sequence[str]], list[str]]

MAX_KEYS: Final = 1_000
"""Maximum variant keys of a URL."""

MAX_TOTAL_KEYS: Final = 100_000
"""Maximum variant keys of all URLs of a bundle together."""

MAX_KEY_TEXT: Final = 1 << 17
"""Maximum characters of all variant keys of a URL: each key repeats its values, so 100 kB could claim a gigabyte."""
_MAX_COUNT: Final = (1 << 64) - 1
_NOWHERE: Final = -1
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


def parse_key(text: str) -> tuple[str, ...] | None:
    """Parse one variant key such as `gzip; ja`: a value for each axis. None if it is invalid, or several keys."""
    lists = _parse(text)
    return tuple(lists[0]) if lists is not None and len(lists) == 1 else None


def write_key(values: Iterable[str]) -> str:
    """Return a variant key in the form in which keys are compared: `gzip;ja`.

    A value is a token if possible, else a string. Raises `ConfigurationError` for one that is neither.
    """
    return ";".join(map(_write, values))


def excess_of_keys(axes: Sequence[Axis]) -> str:
    """Return which limit of a URL its variant keys exceed; empty if none. Does not make the keys."""
    count = 1
    for axis in axes:
        count = min(count * len(axis.values), _MAX_COUNT)
    if not 0 < count <= MAX_KEYS:
        return f"{count} variant keys; the limit is {MAX_KEYS}" if count else ""
    values = sum(count // len(axis.values) * sum(len(_write(value)) for value in axis.values) for axis in axes)
    size = values + count * (len(axes) - 1)
    return f"variant keys of {size} characters; the limit is {MAX_KEY_TEXT}" if size > MAX_KEY_TEXT else ""


def variant_keys(axes: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the possible variant keys of axes with these values, in row-major order (3.3.1 step 4.4.2).

    A value that an axis has twice gives the same key twice.
    """
    return map(";".join, product(*(map(_write, values) for values in axes)))


def select_key(axes: Sequence[Axis], request_fields: Iterable[tuple[str, str]]) -> str | None:
    """Return the key of the best response to a request, by section 4 of the draft; None without an acceptable one.

    The names in `request_fields` come in any case. Without a mechanism for the field of an axis the result is
    None: a key must have a value for each axis (section 3).
    """
    fields = join_fields((name.lower(), value) for name, value in request_fields)
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
    fail_if(not _is_printable(value), f"{value!r} cannot be a variant's value; expected printable ASCII")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _accept(field: str | None) -> Sorter:
    """A.1, by media ranges: "If more than one applies to a given type, the most specific reference has precedence"."""
    weights = _weights(field)
    order = {media_range: place for place, media_range in enumerate(weights)}

    def rank(value: str) -> tuple[float, int, int] | None:
        essence = _folded(value).partition(b";")[0].strip()
        kind = essence.partition(b"/")[0] + b"/*"
        for width, media_range in enumerate((essence, kind, b"*/*")):
            if media_range in weights:
                weight = weights[media_range]
                return (-weight, width, order[media_range]) if weight else None
        return None

    return lambda values: _ranked(values, rank) or list(values[:1])


def _accept_encoding(field: str | None) -> Sorter:
    """A.2: identity comes last unless the request places it, even where it says `identity;q=0`.

    So a request that refuses identity still gets it from a bundle that has nothing else, which every client can decode.
    `*` stands for the axis's codings that the request does not name (RFC 9110, section 12.5.3), in the axis's order.
    """
    weights = _weights(field)
    preferred = [coding for coding in _by_weight(weights) if weights[coding]]
    if b"identity" not in preferred:
        preferred.append(b"identity")

    def sort(values: Sequence[str]) -> list[str]:
        available: dict[bytes, str] = {}
        for value in (*values, "identity"):
            available.setdefault(_folded(value), value)
        found: list[str] = []
        for coding in preferred:
            if coding == b"*":
                found += [value for value in values if _folded(value) not in weights]
            elif coding in available:
                found.append(available[coding])
        return found

    return sort


def _accept_language(field: str | None) -> Sorter:
    """A.3, by the basic filtering of RFC 4647, section 3.3.1: a range matches the tags that begin with its subtags."""
    weights = _weights(field)
    # A tree of subtags, so that a tag of very many of them meets its ranges in one walk: (node, subtag) -> node.
    steps: dict[tuple[int, bytes], int] = {}
    places: dict[int, int | None] = {}
    for place, language_range in enumerate(_by_weight(weights)):
        node = 0
        if language_range != b"*":
            for subtag in language_range.split(b"-"):
                node = steps.setdefault((node, subtag), len(steps) + 1)
        places[node] = place if weights[language_range] else None

    def rank(value: str) -> int | None:
        node = 0
        matched = [places[0]] if 0 in places else []
        for subtag in _folded(value).split(b"-"):
            node = steps.get((node, subtag), _NOWHERE)
            if node in places:
                matched.append(places[node])
        if not matched or matched[-1] is None:
            return None
        return min(place for place in matched if place is not None)

    return lambda values: _ranked(values, rank) or list(values[:1])


MECHANISMS: Final[Mapping[str, Callable[[str | None], Sorter]]] = {
    "accept": _accept,
    "accept-encoding": _accept_encoding,
    "accept-language": _accept_language,
}
"""From the request field, in lower case, to its mechanism."""


def _folded(text: str) -> bytes:
    """Return the form of a text in which it is compared, without regard to case."""
    return text.encode("utf-8", "surrogatepass").lower()


def _weights(field: str | None) -> dict[bytes, float]:
    return {} if field is None else parse_weights(_folded(field))


def _by_weight(weights: Mapping[bytes, float]) -> list[bytes]:
    """Sort members by weight, greatest first; those of equal weight stay in the field's order."""
    return sorted(weights, key=lambda member: -weights[member])


def _ranked(values: Sequence[str], rank: Callable[[str], tuple[float, int, int] | int | None]) -> list[str]:
    """Sort the values that have a rank by it; those of equal rank stay in their order."""
    ranks = [(place, value) for value in values if (place := rank(value)) is not None]
    return [value for _, value in sorted(ranks, key=lambda ranked: ranked[0])]
