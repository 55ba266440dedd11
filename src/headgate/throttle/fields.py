"""The response fields that the throttle reads, parsed from headers in any of the forms that HTTP libraries use.

This file knows neither targets nor counts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from headgate.http.fields import split_list

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
_LOCATION: Final = "location"
_RATE_LIMIT: Final = "ratelimit"
_RATE_POLICY: Final = "ratelimit-policy"
_REMAINING: Final = "x-ratelimit-remaining"
_RESET: Final = "x-ratelimit-reset"
_NAMES: Final = {
    spelling: name
    for name in (_OPT_OUT, _BUCKET, _RETRY_AFTER, _LOCATION, _RATE_LIMIT, _RATE_POLICY, _REMAINING, _RESET)
    for spelling in (name, name.encode("latin-1"))
}
_LENGTHS: Final = frozenset(map(len, _NAMES))
_parameters: Final = re.compile(r";[ ]*([rtqw])=([0-9]{1,15})(?![0-9.])").findall
_SINCE_1970: Final = 1_000_000_000
"""An X-RateLimit-Reset above this is an instant, not a number of seconds."""


class ThrottleFields(msgspec.Struct, frozen=True):
    """The fields of one response that affect the throttle."""

    opts_out: bool = False
    """Whether it has `Exponential-Throttling: disable`."""
    buckets: Sequence[str] = ()
    """The values of `DDoS-Bucket-With`."""
    retry_after: Sequence[str] = ()
    """The values of `Retry-After`."""
    location: str = ""
    """The first `Location`."""
    rate_limits: Sequence[tuple[int, float]] = ()
    """Requests that remain, and the seconds in which: of `RateLimit` and of `X-RateLimit-Remaining` and `-Reset`."""
    quotas: Sequence[tuple[int, float]] = ()
    """The requests of a window, and its seconds: of `RateLimit-Policy`."""


def parse_fields(headers: Headers, *, now: float) -> ThrottleFields | None:
    """Return the fields that affect the throttle; None without any, as in nearly all responses."""
    found: dict[str, list[str]] = {}
    for name, value in headers if isinstance(headers, list) else _pairs_of(headers):
        if len(name) in _LENGTHS:  # most names fail here, and need no copy in lower case
            known = _NAMES.get(name.lower())
            if known is not None:
                found.setdefault(known, []).append(_text(value).strip("\t "))
    if not found:
        return None
    # A list: an intermediary may have joined several lines.
    opted = (member.strip("\t ") for value in found.get(_OPT_OUT, ()) for member in value.split(","))
    return ThrottleFields(
        opts_out="disable" in opted,
        buckets=tuple(found.get(_BUCKET, ())),
        retry_after=tuple(found.get(_RETRY_AFTER, ())),
        location=found.get(_LOCATION, ("",))[0],
        rate_limits=(*_pairs(found.get(_RATE_LIMIT), "r", "t"), *_x_rate_limits(found, now)),
        quotas=tuple(_pairs(found.get(_RATE_POLICY), "q", "w")),
    )


def _pairs(lines: list[str] | None, number: str, seconds: str) -> list[tuple[int, float]]:
    """Return two parameters of each item that has both (draft-ietf-httpapi-ratelimit-headers-11, sections 3 and 4)."""
    items = [dict(_parameters(member)) for member in split_list(lines)] if lines else []
    return [(int(item[number]), float(item[seconds])) for item in items if number in item and seconds in item]


def _x_rate_limits(found: Mapping[str, list[str]], now: float) -> Iterator[tuple[int, float]]:
    remaining, reset = (found.get(name, [""])[0] for name in (_REMAINING, _RESET))
    if _is_number(remaining) and _is_number(reset):
        seconds = int(reset)
        yield int(remaining), max(0.0, seconds - now if seconds > _SINCE_1970 else float(seconds))


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 15


def text_pairs(headers: Headers) -> list[tuple[str, str]]:
    """Return fields as pairs of text."""
    return [(_text(name), _text(value)) for name, value in _pairs_of(headers)]


def _pairs_of(headers: Headers) -> _Pairs:
    items = getattr(headers, "items", None)
    return headers if items is None else items()  # type: ignore[return-value]  # without items() it is pairs


def _text(given: str | bytes) -> str:
    return given if isinstance(given, str) else given.decode("latin-1")
