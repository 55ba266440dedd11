"""What one agent was served and has sent: in the current period, and in the two before it.

The requests of the current period are divided by the fraction that the agent had at their time: its demand. Those of
the period before the last, with the fraction that it had then, show what a change of it has changed (`compliance`).

This file reads no clock.
"""

import enum
import math


class Conduct(enum.Enum):
    """What is known of an agent, as far as it can be seen from single requests."""

    UNSEEN = "unseen"
    """It has sent no requests."""
    SEEN = "seen"
    """It has sent requests that its fraction permits. If it sends none while it is disallowed, it obeys."""
    DISOBEYS = "disobeys"
    """It has sent requests when it was disallowed for long, and has not been permitted all of them since."""


class AgentHistory:
    """The fraction and the requests of one agent: in the current period, and in the two before.

    `patience` is the number of periods for which it may send although it is disallowed: it may be several agents, of
    which each obeys what it fetched itself until that is stale.
    """

    __slots__ = (
        "_disallowed", "_disobeying", "_divided", "_first", "_floor", "_middle_first", "_middle_requests", "_patience",
        "_undivided", "before", "conduct", "fraction", "old", "requests",
    )  # fmt: skip

    def __init__(self, fraction: float, *, floor: float, patience: int = 0) -> None:
        self.fraction = fraction
        """The fraction that the agent was served last; 0 for `disallow`."""
        self.requests = 0.0
        """Requests in this period. The caller adds each request here."""
        self.old = math.nan
        """The fraction in the period before the last; not a number, unless it was the same all the time."""
        self.before = 0.0
        """Requests in the period before the last."""
        self.conduct = Conduct.UNSEEN
        """What was seen until the end of the last period."""
        self._floor = floor
        self._patience = patience
        self._disallowed = 0  # whole periods until the last one
        self._undivided = self._divided = 0.0  # requests before the last fetch in this period, and their demand
        self._disobeying = 0.0  # those of them that were sent while the agent was disallowed
        # Requests before the first fetch are not counted for this agent, so its first period is compared with none.
        self._first = self._middle_first = math.nan
        self._middle_requests = 0.0

    @property
    def demand(self) -> float:
        """The requests in this period, each divided by the fraction at its time, without those that disobey."""
        latest = self.requests - self._undivided
        return self._divided + (0.0 if self._disobeys else latest / max(self.fraction, self._floor))

    @property
    def disobeying(self) -> float:
        """The requests in this period that were sent while the agent was disallowed, or by one that disobeys."""
        return self._disobeying + (self.requests - self._undivided if self._disobeys else 0.0)

    @property
    def _disobeys(self) -> bool:
        return self.fraction <= 0.0 or self.conduct is Conduct.DISOBEYS

    def change(self, fraction: float) -> None:
        """Record that the agent was served another fraction."""
        self._divided, self._disobeying, self._undivided = self.demand, self.disobeying, self.requests
        self.fraction = fraction
        if self.conduct is Conduct.DISOBEYS and fraction >= 1.0:
            self.conduct = Conduct.SEEN

    @property
    def is_comparable(self) -> bool:
        """Whether the fraction has changed in the last period, or at its end, or in none of three periods."""
        return self._first == self.fraction and self._middle_first == self.old

    def begin(self) -> None:
        """Begin the next period."""
        is_disallowed = self.fraction <= 0.0 and self._first <= 0.0
        if self.requests > 0.0:
            if is_disallowed and self._disallowed >= self._patience:
                self.conduct = Conduct.DISOBEYS
            elif self.conduct is Conduct.UNSEEN:
                self.conduct = Conduct.SEEN
        self._disallowed = self._disallowed + 1 if is_disallowed else 0
        self.old = self._middle_first if self._middle_first == self._first else math.nan
        self.before = self._middle_requests
        self._middle_first, self._middle_requests = self._first, self.requests
        self._first = self.fraction
        self.requests = self._undivided = self._divided = self._disobeying = 0.0

    def discard(self) -> None:
        """Begin the next period; those before it are compared with none."""
        self.begin()
        self.old = self._middle_first = math.nan
