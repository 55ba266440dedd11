"""How a request sorts the values of one axis (draft-ietf-httpbis-variants-05, appendix A).

Three mechanisms: Accept, Accept-Encoding and Accept-Language. Each takes the field's value, or None for a request
without that field, and gives a sorter: from the axis's available-values to those "suitable for the request, in order of
preference" (section 6). A sorter takes time proportional to its input, for any input.

Where the appendix defers to HTTP, RFC 9110 is meant: what a more specific member refuses with a weight of 0, a wider
one (`*/*`, `text/*`, `en`, `*`) does not bring back. Members of equal weight are preferred in the field's order.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from headgate.http.media_type import parse_weights

Sorter: TypeAlias = Callable[[Sequence[str]], list[str]]

_NOWHERE: Final = -1


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
"""By the request field that each is for, in lower case."""


def _folded(text: str) -> bytes:
    """Give what is compared, without regard to case; any text has one, and different texts have different ones."""
    return text.encode("utf-8", "surrogatepass").lower()


def _weights(field: str | None) -> dict[bytes, float]:
    return {} if field is None else parse_weights(_folded(field))


def _by_weight(weights: Mapping[bytes, float]) -> list[bytes]:
    """Sort members by their weight, greatest first, those of equal weight in the field's order."""
    return sorted(weights, key=lambda member: -weights[member])


def _ranked(values: Sequence[str], rank: Callable[[str], tuple[float, int, int] | int | None]) -> list[str]:
    """Sort the values that have a rank by it, those of equal rank in their own order."""
    ranks = [(place, value) for value in values if (place := rank(value)) is not None]
    return [value for _, value in sorted(ranks, key=lambda ranked: ranked[0])]
