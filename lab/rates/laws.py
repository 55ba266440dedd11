"""Laws that publish traffic advice: the one of headgate, and simple ones that it is compared with.

A law has the methods of `headgate.advice_control.HistoryLaw`. The simple ones compare the load of a period with the
target, and correct what they published. What they observe is the mean of what was published over one max-age, so they
correct again before their first correction has arrived.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from headgate.advice_control import Entry, HistoryLaw, LawSettings
from headgate.advice_control.law import TARGET


class Feedback(ABC):
    """A law that corrects one fraction for all classes by the load of the last period."""

    def __init__(self, settings: LawSettings, *, start: Iterable[Entry] = ()) -> None:
        self._settings = settings
        self._fraction = min((entry.wanted for entry in start), default=1.0)
        self._arrivals = 0.0
        self._updated: float | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries to publish: the same fraction for each class."""
        return tuple(Entry(name, fraction=round(self._fraction, 6)) for name in self._settings.classes)

    def arrived(self, agent_class: str | None, count: float = 1.0) -> None:  # noqa: ARG002  # the common form
        """Count requests."""
        self._arrivals += count

    def update(self, *, now: float, capacity: float) -> tuple[Entry, ...]:
        """Correct the fraction if a period has ended."""
        if self._updated is None:
            self._updated = now
        elapsed = now - self._updated
        if elapsed >= self._settings.period:
            load = self._arrivals / elapsed / capacity
            self._arrivals, self._updated = 0.0, now
            self._fraction = min(max(self.corrected(self._fraction, load), self._settings.floor), 1.0)
        return self.entries

    @abstractmethod
    def corrected(self, fraction: float, load: float) -> float:
        """Return the next fraction, before it is clipped; `load` is a multiple of the capacity."""


class Ratio(Feedback):
    """Multiplies the fraction by target/load: it would be right if agents obeyed at once."""

    def corrected(self, fraction: float, load: float) -> float:
        """Return the fraction with which the load would be the target."""
        return fraction * TARGET / load if load else 1.0


class Aimd(Feedback):
    """Additive increase below the target, multiplicative decrease above it."""

    def corrected(self, fraction: float, load: float) -> float:
        """Return two hundredths more, or three tenths less."""
        return 0.7 * fraction if load > TARGET else fraction + 0.02


class Nothing(Feedback):
    """Publishes that everything is wanted: what happens without a law."""

    def corrected(self, fraction: float, load: float) -> float:  # noqa: ARG002  # nothing is corrected
        """Return 1."""
        return 1.0


Law: TypeAlias = HistoryLaw | Feedback

LAWS: Final[Mapping[str, Callable[..., Law]]] = {
    "history": HistoryLaw,
    "ratio": Ratio,
    "aimd": Aimd,
    "none": Nothing,
}
"""The laws by name."""
