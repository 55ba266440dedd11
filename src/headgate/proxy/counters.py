"""Counters: by reason, by origin, in bytes. Each worker has its own, and they can be added.

Clients choose which origins they request, so only the most recent ones are kept; the totals include all.
"""

from typing import Final

import msgspec

ACCEPTED: Final = "accepted"
"""The result of an accepted CONNECT; a refused one has its reason."""

_MAX_ORIGINS: Final = 1_000


class OriginCounts(msgspec.Struct):
    """The CONNECT requests for one origin."""

    accepted: int = 0
    refused: dict[str, int] = {}
    """By reason."""


class Counts(msgspec.Struct):
    """Counters since the start."""

    connects: dict[str, int] = {}
    """CONNECT requests by result: accepted, or the reason of the refusal."""
    received: int = 0
    """Bytes that clients received through tunnels."""
    sent: int = 0
    """Bytes that clients sent through tunnels."""
    connect_request_bytes: int = 0
    """Bytes of the heads of CONNECT requests, as received."""
    advice_request_bytes: int = 0
    """Bytes written to sockets to fetch advice, TLS included."""
    advice_fetches: dict[str, int] = {}
    """Traffic advice fetches by result."""
    tunnels: int = 0
    """Open tunnels."""
    origins: dict[str, OriginCounts] = {}
    """The most recently requested origins, the latest at the end."""

    def connected(self, origin: str | None, result: str) -> None:
        """Count a CONNECT; without an origin if its target was malformed."""
        add_count(self.connects, result)
        if origin is None:
            return
        known = self.origins.pop(origin, None) or OriginCounts()
        if len(self.origins) >= _MAX_ORIGINS:
            del self.origins[next(iter(self.origins))]
        self.origins[origin] = known
        if result == ACCEPTED:
            known.accepted += 1
        else:
            add_count(known.refused, result)


def add_count(counts: dict[str, int], word: str) -> None:
    """Increase a counter."""
    counts[word] = counts.get(word, 0) + 1
