"""The places of delayed requests: how many may wait at once.

This file knows nothing of identifiers or clocks. A place is free when its request's release has come, whatever the
shell forgets to say, or earlier when the request goes away (docs/decisions/0004-delay-slots-are-released-by-time.md).
"""

from heapq import heappop, heappush

__all__ = ["DelaySlots"]


class DelaySlots:
    """Places taken by delayed requests, by release time; all operations are given times of one clock."""

    __slots__ = ("_departures", "_places", "taken")

    def __init__(self) -> None:
        self.taken = 0
        """How many requests are delayed, as of the last call of `free`."""
        self._places: dict[float, int] = {}
        self._departures: list[float] = []

    def take(self, release: float) -> None:
        """Take a place until `release`."""
        if release not in self._places:
            heappush(self._departures, release)
        self._places[release] = self._places.get(release, 0) + 1
        self.taken += 1

    def leave(self, release: float) -> None:
        """Free a place that was taken until `release`; does nothing where its time has come."""
        if self._places.get(release, 0) > 0:
            self._places[release] -= 1
            self.taken -= 1

    def free(self, now: float) -> None:
        """Free the places whose time has come."""
        departures = self._departures
        while departures and departures[0] <= now:
            self.taken -= self._places.pop(heappop(departures))
