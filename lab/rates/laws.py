"""Laws that publish traffic advice: the one of headgate, and a simple one that it is compared with.

A law has the methods of `headgate.advice_control.HistoryLaw`. The simple one compares the load of a period with the
target, and corrects what it published. What it observes is the mean of what was published over one max-age, so it
corrects again before its first correction has arrived.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from headgate.advice_control import Entry, HistoryLaw, LawSettings
from headgate.advice_control.law import TARGET


class Ratio:
    """Multiplies one fraction for all classes by target/load: it would be right if agents obeyed at once."""

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
            corrected = self._fraction * TARGET / load if load else 1.0
            self._fraction = min(max(corrected, self._settings.floor), 1.0)
        return self.entries


class Nothing(Ratio):
    """Publishes that everything is wanted: what happens without a law."""

    def update(self, *, now: float, capacity: float) -> tuple[Entry, ...]:  # noqa: ARG002 - the common form
        """Change nothing."""
        return self.entries


Law: TypeAlias = HistoryLaw | Ratio

LAWS: Final[Mapping[str, Callable[..., Law]]] = {
    "history": HistoryLaw,
    "ratio": Ratio,
    "none": Nothing,
}
"""The laws by name."""
