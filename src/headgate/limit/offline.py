"""Verdicts on the requests of one identifier, if all of them are known in advance.

This module knows neither domains, messages nor logs. Without limits on histories and delayed requests, identifiers do
not affect each other. So each can be evaluated alone, which takes a third of the time that a `Gatekeeper` with a
`Master` takes for the requests in time order. A property test compares the two.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headgate.limit.history import ALGORITHMS, AlgorithmName, new_history
from headgate.limit.rule import Rule
from headgate.release import ASAP


class Verdicts(NamedTuple):
    """The number of delayed and rejected requests, and the longest delay in the unit of the times."""

    delayed: int = 0
    rejected: int = 0
    longest_delay: float = 0.0


class OfflineGate:
    """Applies `rules` to requests known in advance; a hold longer than `max_delay` is a rejection."""

    def __init__(self, rules: Sequence[Rule], algorithm: AlgorithmName, *, max_delay: float) -> None:
        self._record = ALGORITHMS[algorithm](rules).record
        self._max_delay = max_delay
        self.always_accepted = min(rule.burst for rule in rules)
        """An identifier with at most this many requests is never held, by any algorithm."""

    def judge_all(self, times: Iterable[float]) -> Verdicts:
        """Return the verdicts on the requests of one identifier that arrive at `times`, in ascending order."""
        record, max_delay = self._record, self._max_delay
        history = new_history()
        release, longest = ASAP, 0.0
        delayed = rejected = 0
        for now in times:
            if release <= now:
                following = record(history, now, now)
            else:
                wait = release - now
                if wait > max_delay:
                    rejected += 1
                    continue
                delayed += 1
                longest = max(longest, wait)
                following = record(history, release, now)
            release = max(release, following)
        return Verdicts(delayed, rejected, longest)
