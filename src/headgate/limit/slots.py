"""Slots of delayed requests: they limit how many requests wait at once.

This module knows neither identifiers nor clocks. A slot is free at the release time of its request, without a call by
the shell, or earlier if the client disconnects (docs/decisions/0004-delay-slots-are-released-by-time.md).
"""

from heapq import heappop, heappush


class DelaySlots:
    """Counts the slots in use by release time; all times are of one clock."""

    __slots__ = ("_counts", "_releases", "taken")

    def __init__(self) -> None:
        self.taken = 0
        """The number of delayed requests, as of the last call of `free`."""
        self._counts: dict[float, int] = {}
        self._releases: list[float] = []

    def take(self, release: float) -> None:
        """Take a slot until `release`."""
        if release not in self._counts:
            heappush(self._releases, release)
        self._counts[release] = self._counts.get(release, 0) + 1
        self.taken += 1

    def leave(self, release: float) -> None:
        """Free a slot that was taken until `release`; does nothing after that time."""
        if self._counts.get(release, 0) > 0:
            self._counts[release] -= 1
            self.taken -= 1

    def free(self, now: float) -> None:
        """Free the slots whose release time has come."""
        releases = self._releases
        while releases and releases[0] <= now:
            self.taken -= self._counts.pop(heappop(releases))
