"""A gatekeeper's memory of the verdicts that it has accounted for, to be sent again to a master without a history.

This module knows neither sockets nor clocks. A verdict is kept for the longest burst/rate of its domain: an older one
has no effect. Rejected ones are not kept, since a master does not record them.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from headgate.limit.messages import MAX_CONTROL_FRAME, Accounting
from headgate.release import Status

MAX_RECENT = 50_000
"""Verdicts kept in all domains: 9 MB with identifiers of 15 bytes, 19 MB with those of 255."""

DEFAULT_WINDOW = 3_600.0
"""Seconds for which the verdicts of a domain are kept if its rules are not known."""

_DROPPED_AT_ONCE = 256
"""Verdicts of the largest domain that are dropped when there are too many."""

_REJECTED = Status.REJECTED  # an attribute of an Enum is slow to read


class _KeptDomain:
    """The verdicts kept of one domain, the oldest first; `dropped` ones were before them."""

    __slots__ = ("dropped", "verdicts", "window")

    def __init__(self, window: float, dropped: int) -> None:
        self.verdicts: deque[Accounting] = deque()
        self.window = window
        self.dropped = dropped


class RecentAccounting:
    """The accepted and delayed verdicts of the last `windows[name]` seconds of each of `domains`, without log info.

    At most `max_recent` are kept; the oldest of the largest domain are dropped. A window of 0 keeps none.
    """

    def __init__(
        self, domains: Iterable[str], windows: Mapping[str, float] | None = None, *, max_recent: int = MAX_RECENT
    ) -> None:
        self._max_recent = max_recent
        self._size = 0
        self._added = 0
        self._domains: dict[str, _KeptDomain] = {}
        self.set_domains(domains, windows)

    def __len__(self) -> int:
        """The number of verdicts kept."""
        return self._size

    def set_domains(self, domains: Iterable[str], windows: Mapping[str, float] | None = None) -> None:
        """Replace the domains and their windows; drop the verdicts of other domains."""
        before, self._domains = self._domains, {}
        for name in domains:
            window = (windows or {}).get(name, DEFAULT_WINDOW)
            if window > 0.0:
                # A domain that comes back begins after all of its former positions.
                kept = self._domains[name] = before.get(name) or _KeptDomain(window, self._added)
                kept.window = window
        self._size = sum(len(kept.verdicts) for kept in self._domains.values())

    def extend(self, verdicts: Iterable[Accounting]) -> None:
        """Keep the verdicts that a master would record; drop those that have left the window of their domain."""
        domains = self._domains
        added = dropped = 0
        for accounting in verdicts:
            kept = domains.get(accounting.domain)
            if kept is None or accounting.status is _REJECTED or len(accounting.identifier) > MAX_CONTROL_FRAME:
                continue
            recent = kept.verdicts
            recent.append(_without_loginfo(accounting) if accounting.loginfo else accounting)
            added += 1
            oldest = accounting.received - kept.window
            while recent and recent[0].release <= oldest:
                recent.popleft()
                kept.dropped += 1
                dropped += 1
        self._added += added
        self._size += added - dropped
        while self._size > self._max_recent:
            self._make_room()

    def _make_room(self) -> None:
        largest = max(self._domains.values(), key=_size)
        count = min(_DROPPED_AT_ONCE, len(largest.verdicts))
        for _ in range(count):
            largest.verdicts.popleft()
        largest.dropped += count
        self._size -= count

    def position(self, domain: str) -> int:
        """Return the number of verdicts on `domain` so far, those that were dropped included."""
        kept = self._domains.get(domain)
        return kept.dropped + len(kept.verdicts) if kept is not None else 0

    def between(self, domain: str, start: int, end: int, *, now: float) -> list[Accounting]:
        """Return the verdicts on `domain` between two positions, without those that have left the window at `now`.

        Those later than `now` are left out, too: the clock was set back since, and their age is not known.
        """
        kept = self._domains.get(domain)
        if kept is None:
            return []
        first, last = max(0, start - kept.dropped), max(0, end - kept.dropped)
        oldest = now - kept.window
        verdicts = list(kept.verdicts)[first:last]
        return [accounting for accounting in verdicts if accounting.release > oldest and accounting.received <= now]


def _without_loginfo(accounting: Accounting) -> Accounting:
    return Accounting(
        accounting.domain, accounting.status, accounting.identifier, accounting.received, accounting.release
    )


def _size(kept: _KeptDomain) -> int:
    return len(kept.verdicts)
