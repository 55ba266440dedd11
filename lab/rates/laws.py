"""Laws that publish traffic advice: the controller of headgate, and the naive laws that it is compared with.

A law has the methods of `headgate.advice.controller.Controller`. The naive laws compare the load of a period with the
target, and correct what they published. What they observe is the mean of what was published over one max-age, so they
correct again before their first correction has arrived.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Protocol

from headgate.advice.controller import Controller, Explanation, Settings
from headgate.advice_control import Entry


class Law(Protocol):
    """Publishes an entry for each class; see `Controller`."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries to publish."""

    def fetched(self, agent_class: str, agent: Hashable, *, now: float) -> Entry:
        """Return the entry to serve to an agent."""

    def arrived(self, agent_class: str | None, agent: Hashable = None, *, count: float = 1.0) -> None:
        """Count requests before any is rejected; those of people have no class."""

    def update(self, *, now: float, capacity: float | None = None) -> tuple[Entry, ...]:
        """Decide if a period has ended; return the entries to publish."""

    def explain(self) -> tuple[Explanation, ...]:
        """Return what is known of each class; nothing, if the law knows only loads."""


class Feedback(ABC):
    """A law that corrects one fraction for all classes by the load of the last period."""

    def __init__(self, settings: Settings, *, start: Iterable[Entry] = ()) -> None:
        self._settings = settings
        self._fraction = min((entry.wanted for entry in start), default=1.0)
        self._arrivals = 0.0
        self._updated: float | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries to publish: the same fraction for each class."""
        return tuple(Entry(each.name, fraction=round(self._fraction, 6)) for each in self._settings.classes)

    def fetched(self, agent_class: str, agent: Hashable, *, now: float) -> Entry:  # noqa: ARG002  # the protocol
        """Return the entry of a class; nothing is remembered."""
        return next(entry for entry in self.entries if entry.user_agent == agent_class)

    def arrived(self, agent_class: str | None, agent: Hashable = None, *, count: float = 1.0) -> None:  # noqa: ARG002  # the protocol
        """Count requests."""
        self._arrivals += count

    def update(self, *, now: float, capacity: float | None = None) -> tuple[Entry, ...]:
        """Correct the fraction if a period has ended."""
        settings = self._settings
        if self._updated is None:
            self._updated = now
        elapsed = now - self._updated
        if elapsed >= settings.period:
            load = self._arrivals / elapsed / (settings.capacity if capacity is None else capacity)
            self._arrivals, self._updated = 0.0, now
            self._fraction = min(max(self.corrected(self._fraction, load), settings.floor), 1.0)
        return self.entries

    def explain(self) -> tuple[Explanation, ...]:
        """Return nothing: no demand is estimated."""
        return ()

    @abstractmethod
    def corrected(self, fraction: float, load: float) -> float:
        """Return the next fraction, before it is clipped; `load` is a multiple of the capacity."""


class Ratio(Feedback):
    """Multiplies the fraction by target/load: it would be right if agents obeyed at once."""

    def corrected(self, fraction: float, load: float) -> float:
        """Return the fraction with which the load would be the target."""
        return fraction * self._settings.target / load if load else 1.0


class Aimd(Feedback):
    """Additive increase below the target, multiplicative decrease above it."""

    def corrected(self, fraction: float, load: float) -> float:
        """Return two hundredths more, or three tenths less."""
        return 0.7 * fraction if load > self._settings.target else fraction + 0.02


class Fixed(Feedback):
    """Publishes that everything is wanted: what happens without a law."""

    def corrected(self, fraction: float, load: float) -> float:  # noqa: ARG002  # nothing is corrected
        """Return 1."""
        return 1.0


class Arrivals(Controller):
    """The demand law, with a compliance from the arrivals of a class: naive, as a demand that changes looks like it."""

    def __init__(self, settings: Settings, *, start: Iterable[Entry] = ()) -> None:
        super().__init__(settings, start=start)
        self._latest: deque[tuple[Explanation, ...]] = deque(maxlen=math.ceil(settings.max_age / settings.period) + 1)

    def update(self, *, now: float, capacity: float | None = None, **others: Any) -> tuple[Entry, ...]:
        """Decide; remember what was known in each period of one max-age."""
        entries = super().update(now=now, capacity=capacity, **others)
        known = super().explain()
        if not self._latest or known != self._latest[-1]:
            self._latest.append(known)
        return entries

    def explain(self) -> tuple[Explanation, ...]:
        """Return what is known of each class, with the change of its arrivals by the change of the fraction."""
        if not self._latest:
            return super().explain()
        return tuple(
            after._replace(compliance=_change(after.arrivals, before.arrivals, after.in_force, before.in_force))
            for before, after in zip(self._latest[0], self._latest[-1], strict=True)
        )


def _change(arrivals: float, arrivals_before: float, in_force: float, in_force_before: float) -> float | None:
    """Return the relative change of arrivals by that of the fraction in force; None without a change."""
    if not arrivals_before or not in_force_before or abs(in_force / in_force_before - 1.0) < 0.1:
        return None
    return min(max((1.0 - arrivals / arrivals_before) / (1.0 - in_force / in_force_before), 0.0), 1.0)


LAWS: Final[Mapping[str, Callable[..., Law]]] = {
    "demand": Controller,
    "arrivals": Arrivals,
    "ratio": Ratio,
    "aimd": Aimd,
    "none": Fixed,
}
"""The laws by name."""
