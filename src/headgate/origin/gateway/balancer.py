"""Which of several origins is asked: their health as data, and a choice. Time and chance are arguments; no I/O.

An origin fails after `max_failures` failures within `failure_window` seconds and no success in between. Then it is left
out for `failure_window` seconds, and one request in each such time tries it until a success. Without a healthy one, the
origin whose time is over first is asked: no request is refused without an attempt.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec


class OriginHealth(msgspec.Struct):
    """What the choice depends on: the settings of one origin, its requests in flight, and its failures."""

    weight: int = 1
    backup: bool = False
    max_in_flight: int = 0
    """0 for no limit."""
    max_failures: int = 3
    """0 if failures of requests do not count."""
    failure_window: float = 10.0
    in_flight: int = 0
    failures: int = 0
    """Failures since the last success."""
    since: float = 0.0
    """When the first of these was."""
    release: float = 0.0
    """When the next request may try it; 0 unless it has failed."""

    @property
    def is_full(self) -> bool:
        """Whether it has as many requests in flight as it may have."""
        return 0 < self.max_in_flight <= self.in_flight

    def fail(self, now: float, hold: float = 0.0) -> None:
        """Count a failure; with a `hold` the origin has failed at once, for so many seconds."""
        if not self.release and now - self.since > self.failure_window:
            self.failures, self.since = 0, now
        self.failures += 1
        if hold or self.release or 0 < self.max_failures <= self.failures:
            self.release = max(self.release, now + (hold or self.failure_window))

    def succeed(self) -> None:
        """Forget the failures."""
        self.failures, self.release = 0, 0.0


class HasHealth(Protocol):
    """An origin."""

    health: OriginHealth


_Origin = TypeVar("_Origin", bound=HasHealth)


class Balancer(Generic[_Origin]):
    """Chooses an origin for each request: of two drawn by their weights, the one with less in flight for its weight.

    `draw` returns a random number in [0, 1).
    """

    def __init__(self, origins: Sequence[_Origin], draw: Callable[[], float]) -> None:
        self._draw = draw
        self.replace(origins)

    def replace(self, origins: Sequence[_Origin]) -> None:
        """Choose from other origins."""
        self.origins = origins
        """The origins to choose from."""
        alone = len(origins) == 1 and not origins[0].health.max_in_flight
        self.only: _Origin | None = origins[0] if alone else None
        """The origin that is asked always, if there is no choice."""

    def choose(self, now: float, excluded: _Origin | None = None) -> _Origin | None:
        """Return the origin to ask, other than `excluded`; None if all are full."""
        free = [one for one in self.origins if one is not excluded and not one.health.is_full]
        ready = [one for one in free if one.health.release <= now]
        ready = [one for one in ready if not one.health.backup] or ready
        found = self._lighter(ready) if ready else min(free, key=lambda one: one.health.release, default=None)
        if found is not None and found.health.release:
            found.health.release = now + found.health.failure_window  # only this request tries it
        return found

    def _lighter(self, origins: list[_Origin]) -> _Origin:
        first = self._pick(origins)
        if len(origins) == 1:
            return first
        second = self._pick([one for one in origins if one is not first])
        return second if _load(second.health) < _load(first.health) else first

    def _pick(self, origins: list[_Origin]) -> _Origin:
        left = self._draw() * sum(one.health.weight for one in origins)
        for one in origins:
            left -= one.health.weight
            if left < 0:
                return one
        return origins[-1]


def _load(health: OriginHealth) -> float:
    return health.in_flight / health.weight
