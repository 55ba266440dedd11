"""What a master permits an identifier from now on, and how several gatekeepers that count for themselves share it.

This module knows neither histories, messages nor clocks. A gatekeeper that counts for itself, an Envoy, applies one
token bucket: the rules of a domain and the requests of the past become one (`Allowance`). It reports every five seconds
what it has admitted and denied. So each gets a share of the rate, by what it reports: max-min fair, so that no
gatekeeper gets less than an equal part unless it wants less.
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


_GROWTH: Final = 1.05
"""What a gatekeeper wants, as a multiple of the requests that it has had: its load may grow until the next report."""
_LEAST_WANT: Final = 0.02
"""The least that a gatekeeper wants, as a part of the rate."""
_TOLERANCE: Final = 0.03
"""A part of a share; if no share changes by more, all stay as they are."""


def next_want(offered: float, *, want: float, share: float, rate: float) -> float:
    """Return what a gatekeeper wants after a report of `offered` requests per second; all four are per second.

    It rises at once, and sinks by half of the difference, so that a share is not lost by a short pause.
    """
    demand = max(_GROWTH * offered, _LEAST_WANT * rate)
    return max(demand, (min(want, share) + demand) / 2)


def fair_shares(total: float, wants: Sequence[float]) -> list[float]:
    """Divide `total` by max-min fairness; what remains after all wants is spread equally.

    The sum of the result is at most `total`, except for rounding errors.
    """
    shares = [0.0] * len(wants)
    left = max(0.0, total)
    order = sorted(range(len(wants)), key=wants.__getitem__)
    for place, index in enumerate(order):
        shares[index] = min(wants[index], left / (len(order) - place))
        left -= shares[index]
    extra = max(0.0, left) / max(1, len(wants))
    return [share + extra for share in shares]


def is_stable(old: Sequence[float], new: Sequence[float]) -> bool:
    """Return whether no share changes by more than 3 %, so that the old ones can stay."""
    return all(abs(after - before) <= _TOLERANCE * before for before, after in zip(old, new, strict=True))


def deal(tokens: int, shares: Sequence[float]) -> list[int]:
    """Divide whole tokens in proportion to shares; the rest goes to those whose part was rounded down most.

    The sum of the result is `tokens`, or 0 if all shares are.
    """
    total = sum(shares)
    if total <= 0.0:
        return [0] * len(shares)
    exact = [tokens * share / total for share in shares]
    dealt = [int(part) for part in exact]
    rest = tokens - sum(dealt)
    for index in sorted(range(len(shares)), key=lambda at: (dealt[at] - exact[at], at))[:rest]:
        dealt[index] += 1
    return dealt
