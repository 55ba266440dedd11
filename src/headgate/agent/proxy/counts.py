"""What a proxy counts: by reason, by origin, in bytes. Each worker counts for itself, and counts add up.

Origins are the strangers' to name, so only so many are remembered, those last asked for; the totals have them all.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

__all__ = ["ACCEPTED", "Counts", "OriginCounts", "merged"]

ACCEPTED: Final = "accepted"
"""The result of a CONNECT that became a tunnel; what was refused has its reason."""

_MOST_ORIGINS: Final = 1_000


class OriginCounts(msgspec.Struct):
    """What became of the CONNECTs for one origin."""

    accepted: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    """How many, by reason."""


class Counts(msgspec.Struct):
    """What was counted since the start."""

    connects: Counter[str] = msgspec.field(default_factory=Counter)
    """CONNECTs by what became of them: `ACCEPTED`, or the reason of the refusal."""
    received: int = 0
    """Bytes that clients received through tunnels that are over."""
    sent: int = 0
    """Bytes that clients sent through tunnels that are over."""
    connect_request_bytes: int = 0
    """Bytes of the heads of CONNECTs."""
    advice_request_bytes: int = 0
    """Bytes that were written to sockets to ask for advice, TLS included."""
    advice_fetches: Counter[str] = msgspec.field(default_factory=Counter)
    """Fetches of advice by result: "entry", "none" or "unreachable"."""
    tunnels: int = 0
    """Tunnels that are open."""
    origins: OrderedDict[str, OriginCounts] = msgspec.field(default_factory=OrderedDict)
    """The origins that were asked for last."""

    def connected(self, origin: str | None, result: str) -> None:
        """Count what became of a CONNECT; without an origin where it named none."""
        self.connects[result] += 1
        if origin is None:
            return
        known = self.origins.get(origin)
        if known is None:
            if len(self.origins) >= _MOST_ORIGINS:
                self.origins.popitem(last=False)
            known = self.origins[origin] = OriginCounts()
        self.origins.move_to_end(origin)
        if result == ACCEPTED:
            known.accepted += 1
        else:
            known.refused[result] += 1


def merged(all_counts: Iterable[Counts]) -> Counts:
    """Add counts up: those of several workers, the living and the dead."""
    total = Counts()
    for counts in all_counts:
        total.connects.update(counts.connects)
        total.advice_fetches.update(counts.advice_fetches)
        for name in ("received", "sent", "connect_request_bytes", "advice_request_bytes", "tunnels"):
            setattr(total, name, getattr(total, name) + getattr(counts, name))
        for origin, known in counts.origins.items():
            sum_of = total.origins.setdefault(origin, OriginCounts())
            sum_of.accepted += known.accepted
            sum_of.refused.update(known.refused)
    return total
