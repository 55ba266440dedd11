"""The three response fields that speak to a throttle, picked from among all the others as cheaply as may be.

This file knows nothing of targets and counts; what the values mean is decided elsewhere.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final, Protocol, TypeAlias

import msgspec

__all__ = ["Fields", "Headers", "Words", "pairs_of"]

_Pairs: TypeAlias = Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]


class _WithItems(Protocol):
    """What some libraries have that is no mapping, such as the headers of `http.client`."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Give pairs, one for each line."""


Headers: TypeAlias = Mapping[str, str] | _WithItems | _Pairs
"""A response's fields: a mapping, or pairs, one for each line; names in any case."""

_OPT_OUT: Final = "exponential-throttling"
_BUCKET: Final = "ddos-bucket-with"
_RETRY_AFTER: Final = "retry-after"
_NAMES: Final = frozenset({_OPT_OUT, _BUCKET, _RETRY_AFTER})
_LENGTHS: Final = frozenset(map(len, _NAMES))
_MOST_NAMES: Final = 256
_LONGEST_NAME: Final = 64
_NAME: Final = itemgetter(0)


class Words(msgspec.Struct, frozen=True):
    """What a response says to the throttle."""

    opts_out: bool
    """Whether it has `Exponential-Throttling: disable`."""
    buckets: tuple[str, ...]
    """The values of `DDoS-Bucket-With`."""
    retry_after: tuple[str, ...]
    """The values of `Retry-After`."""


class Fields:
    """Reads the fields of many responses, and remembers which names say nothing."""

    def __init__(self) -> None:
        self._silent: set[str | bytes] = set()

    def words(self, headers: Headers) -> Words | None:
        """Give what the fields say; None when they say nothing, which is what nearly all do."""
        # Most servers send the same few names again and again: one look at all of them at once.
        if isinstance(headers, dict):
            return None if self._silent.issuperset(headers) else self._looked_at(headers.items())
        if isinstance(headers, list):
            return None if self._silent.issuperset(map(_NAME, headers)) else self._looked_at(headers)
        return _spoken(pairs_of(headers))

    def _looked_at(self, pairs: _Pairs) -> Words | None:
        found = _spoken(pairs)
        if found is None:
            self._remember(map(_NAME, pairs))
        return found

    def _remember(self, names: Iterable[str | bytes]) -> None:
        if len(self._silent) >= _MOST_NAMES:
            self._silent.clear()
        # One of the three may have said nothing only because its value does not.
        self._silent.update(name for name in names if len(name) <= _LONGEST_NAME and _text(name).lower() not in _NAMES)


def pairs_of(headers: Headers) -> _Pairs:
    """Give fields as pairs."""
    items = getattr(headers, "items", None)
    return headers if items is None else items()  # type: ignore[return-value]


def _spoken(pairs: _Pairs) -> Words | None:
    lines = []
    for name, value in pairs:
        if len(name) in _LENGTHS:  # all that is looked at of most names
            word = _text(name).lower()
            if word in _NAMES:
                lines.append((word, _text(value).strip("\t ")))
    if not lines:
        return None
    opts_out = any("disable" in _members(value) for word, value in lines if word == _OPT_OUT)
    buckets = tuple(value for word, value in lines if word == _BUCKET)
    retry_after = tuple(value for word, value in lines if word == _RETRY_AFTER)
    return Words(opts_out, buckets, retry_after) if opts_out or buckets or retry_after else None


def _members(value: str) -> list[str]:
    """Split a field whose lines something on the way has joined."""
    return [member.strip("\t ") for member in value.split(",")]


def _text(given: str | bytes) -> str:
    return given if isinstance(given, str) else given.decode("latin-1")
