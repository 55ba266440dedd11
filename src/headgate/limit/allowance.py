"""What a master permits an identifier from now on, as one token bucket.

This module knows neither histories nor messages. A gatekeeper that counts for itself applies one token bucket, so the
rules of a domain and the requests of the past become one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.limit.rule import Rule

_HORIZON: Final = 5.0
"""Seconds for which the token bucket must obey all rules: until the next report."""
_LEAST_TIME: Final = 0.1
"""Seconds; a token bucket holds at least what the rate permits in this time, as requests never come evenly."""


_ROUNDING_ERROR: Final = 1e-6
"""Of a number of requests, computed from instants since 1970."""


class Allowance(NamedTuple):
    """What all gatekeepers of an identifier together may admit."""

    rate: float
    """Requests per second."""
    tokens: int
    """Requests that may be admitted at once, at least 1."""
    burst: int
    """The most that `tokens` can be."""
    hold: float
    """Seconds until the first of them; 0.0 if the identifier is not held."""


def allowance(rules: Sequence[Rule], available: Sequence[float], hold: float) -> Allowance:
    """Return the largest token bucket that obeys all `rules` until the next report; `available` is of each rule."""
    least = max(0.0, min(available))
    rates = [1 / rule.interval for rule in rules]
    rate = min(own + max(0.0, left - least) / _HORIZON for own, left in zip(rates, available, strict=True))
    burst = min(rule.burst for rule in rules)
    tokens = max(1, int(least + _ROUNDING_ERROR), min(burst, int(rate * _LEAST_TIME)))
    return Allowance(rate, min(burst, tokens), burst, hold)
