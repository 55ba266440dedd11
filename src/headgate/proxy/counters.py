"""What a proxy counts: by reason, by origin, in bytes. Each worker counts for itself, and counts add up.

Origins are the strangers' to name, so only so many are remembered, those last asked for; the totals have them all.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

__all__ = ["ACCEPTED", "Counts", "OriginCounts", "merged", "add_count"]

ACCEPTED: Final = "accepted"
"""The result of a CONNECT that became a tunnel; what was refused has its reason."""

_MOST_ORIGINS: Final = 1_000


class OriginCounts(msgspec.Struct):
    """What became of the CONNECTs for one origin."""

    accepted: int = 0
    refused: dict[str, int] = {}
    """How many, by reason."""


class Counts(msgspec.Struct):
    """What was counted since the start."""

    connects: dict[str, int] = {}
    """CONNECTs by what became of them: `ACCEPTED`, or the reason of the refusal."""
    received: int = 0
    """Bytes that clients received through tunnels."""
    sent: int = 0
    """Bytes that clients sent through tunnels."""
    connect_request_bytes: int = 0
    """Bytes of the heads of CONNECTs, as they crossed the socket."""
    advice_request_bytes: int = 0
    """Bytes that were written to sockets to ask for advice, TLS included."""
    advice_fetches: dict[str, int] = {}
    """Fetches of advice by result: "entry", "none" or "unreachable"."""
    tunnels: int = 0
    """Tunnels that are open."""
    origins: dict[str, OriginCounts] = {}
    """The origins that were asked for last, the latest at the end."""

    def connected(self, origin: str | None, result: str) -> None:
        """Count what became of a CONNECT; without an origin where it named none."""
        add_count(self.connects, result)
        if origin is None:
            return
        known = self.origins.pop(origin, None) or OriginCounts()
        if len(self.origins) >= _MOST_ORIGINS:
            del self.origins[next(iter(self.origins))]
        self.origins[origin] = known
        if result == ACCEPTED:
            known.accepted += 1
        else:
            add_count(known.refused, result)


def merged(all_counts: Iterable[Counts]) -> Counts:
    """Add counts up: those of several workers, the living and the dead."""
    total = Counts()
    for counts in all_counts:
        _add(total.connects, counts.connects)
        _add(total.advice_fetches, counts.advice_fetches)
        for name in ("received", "sent", "connect_request_bytes", "advice_request_bytes", "tunnels"):
            setattr(total, name, getattr(total, name) + getattr(counts, name))
        for origin, known in counts.origins.items():
            sum_of = total.origins.setdefault(origin, OriginCounts())
            sum_of.accepted += known.accepted
            _add(sum_of.refused, known.refused)
    return total


def add_count(counts: dict[str, int], word: str, times: int = 1) -> None:
    """Count a word."""
    counts[word] = counts.get(word, 0) + times


def _add(total: dict[str, int], counts: dict[str, int]) -> None:
    for word, times in counts.items():
        add_count(total, word, times)
