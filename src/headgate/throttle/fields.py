"""The three response fields that the throttle reads, parsed from headers in any of the forms that HTTP libraries use.

This file knows neither targets nor counts.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec

_Pairs: TypeAlias = Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]


class _WithItems(Protocol):
    """Headers that are not a `Mapping`, such as those of `http.client`."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return pairs of name and value, one per line."""


Headers: TypeAlias = Mapping[str, str] | _WithItems | _Pairs
"""A response's fields: a mapping, or pairs of name and value, one per line; names in any case."""

_OPT_OUT: Final = "exponential-throttling"
_BUCKET: Final = "ddos-bucket-with"
_RETRY_AFTER: Final = "retry-after"
_NAMES: Final = {
    spelling: name for name in (_OPT_OUT, _BUCKET, _RETRY_AFTER) for spelling in (name, name.encode("latin-1"))
}
_LENGTHS: Final = frozenset(map(len, _NAMES))


class ThrottleFields(msgspec.Struct, frozen=True):
    """The fields of one response that affect the throttle."""

    opts_out: bool
    """Whether it has `Exponential-Throttling: disable`."""
    buckets: tuple[str, ...]
    """The values of `DDoS-Bucket-With`."""
    retry_after: tuple[str, ...]
    """The values of `Retry-After`."""


def parse_fields(headers: Headers) -> ThrottleFields | None:
    """Return the fields that affect the throttle; None without any, as in nearly all responses."""
    lines = []
    for name, value in headers if isinstance(headers, list) else _pairs_of(headers):
        if len(name) in _LENGTHS:  # most names fail here, and need no copy in lower case
            known = _NAMES.get(name.lower())
            if known is not None:
                lines.append((known, _text(value).strip("\t ")))
    if not lines:
        return None
    # A list: an intermediary may have joined several lines.
    opted = (member.strip("\t ") for name, value in lines if name == _OPT_OUT for member in value.split(","))
    opts_out = "disable" in opted
    buckets = tuple(value for name, value in lines if name == _BUCKET)
    retry_after = tuple(value for name, value in lines if name == _RETRY_AFTER)
    return ThrottleFields(opts_out, buckets, retry_after) if opts_out or buckets or retry_after else None


def text_pairs(headers: Headers) -> list[tuple[str, str]]:
    """Return fields as pairs of text."""
    return [(_text(name), _text(value)) for name, value in _pairs_of(headers)]


def _pairs_of(headers: Headers) -> _Pairs:
    items = getattr(headers, "items", None)
    return headers if items is None else items()  # type: ignore[return-value]  # without items() it is pairs


def _text(given: str | bytes) -> str:
    return given if isinstance(given, str) else given.decode("latin-1")
