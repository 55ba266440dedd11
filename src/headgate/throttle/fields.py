"""The three response fields that speak to a throttle, picked from among all the others as cheaply as may be.

This file knows nothing of targets and counts; what the values mean is decided elsewhere.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

__all__ = ["Fields", "Headers", "Words"]

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]
"""A response's fields: a mapping, or pairs, one for each line; names in any case."""

_OPT_OUT: Final = "exponential-throttling"
_BUCKET: Final = "ddos-bucket-with"
_RETRY_AFTER: Final = "retry-after"
_NAMES: Final = frozenset({_OPT_OUT, _BUCKET, _RETRY_AFTER})
_LENGTHS: Final = frozenset(map(len, _NAMES))
_MOST_NAMES: Final = 256
_LONGEST_NAME: Final = 64


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
        self._silent: set[str] = set()

    def words(self, headers: Headers) -> Words | None:
        """Give what the fields say; None when they say nothing, which is what nearly all do."""
        if isinstance(headers, dict):
            # Most servers send the same few names again and again: one look at all of them at once.
            if self._silent.issuperset(headers):
                return None
            found = _spoken(headers.items())
            if found is None:
                self._remember(headers)
            return found
        return _spoken(headers.items() if isinstance(headers, Mapping) else headers)

    def _remember(self, names: Iterable[str]) -> None:
        if len(self._silent) >= _MOST_NAMES:
            self._silent.clear()
        # One of the three may have said nothing only because its value does not.
        self._silent.update(name for name in names if len(name) <= _LONGEST_NAME and name.lower() not in _NAMES)


def _spoken(pairs: Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]) -> Words | None:
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
