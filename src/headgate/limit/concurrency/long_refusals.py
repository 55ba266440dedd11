"""Finds classes most of whose requests are refused for a day: search engines remove pages that fail for so long.

A class is refused in an hour if more than half of its requests in this hour are. It is refused for as long as all of
its hours have been so; an hour without a request does not count for either. Single refusals are what a limit is for,
and after a good hour a crawler has seen its pages.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from headgate.limit.concurrency.values import PRIORITIES, Priority

DAY: Final = 86_400.0
_HOUR: Final = 3_600.0
_SHARE: Final = 0.5


class RequestCounts(NamedTuple):
    """Requests of a class so far."""

    answered: int
    refused: int


_NO_COUNTS: Final = RequestCounts(0, 0)


class LongRefusals:
    """Takes counts of requests, and knows since when each class is refused.

    Call `update` every minute or so. Counts never decrease, but may begin anew at 0 after a restart. `now` is in
    seconds of any clock that is never set back.
    """

    def __init__(self, *, warn_after: float = DAY, hour: float = _HOUR) -> None:
        self._warn_after = warn_after
        self._hour = hour
        self._began: float | None = None  # the hour
        self._counts: dict[Priority, RequestCounts] = {}  # when it began
        self._since: dict[Priority, float] = {}
        self._warned: dict[Priority, float] = {}

    def update(self, counts: Mapping[Priority, RequestCounts], *, now: float) -> Sequence[Priority]:
        """Take the counts so far; returns the classes of which to warn: after `warn_after`, and again as often."""
        if self._began is None:
            self._began, self._counts = now, dict(counts)
        if now < self._began + self._hour:
            return ()
        warnings = [priority for priority in PRIORITIES if self._judge(priority, counts.get(priority, _NO_COUNTS), now)]
        self._began, self._counts = now, dict(counts)
        return warnings

    def refused_for(self, priority: Priority, *, now: float) -> float:
        """Return for how many seconds most requests of a class have been refused; 0 if they are not."""
        return now - self._since[priority] if priority in self._since else 0.0

    def _judge(self, priority: Priority, counts: RequestCounts, now: float) -> bool:
        """End an hour; returns whether to warn."""
        assert self._began is not None
        before = self._counts.get(priority, _NO_COUNTS)
        if counts.answered < before.answered or counts.refused < before.refused:
            before = _NO_COUNTS
        answered, refused = counts.answered - before.answered, counts.refused - before.refused
        if not answered + refused:
            pass  # neither refused nor served
        elif refused <= _SHARE * (answered + refused):
            self._since.pop(priority, None)
            self._warned.pop(priority, None)
        else:
            self._since.setdefault(priority, self._began)
        last = self._warned.get(priority, self._since.get(priority, now))
        if now - last < self._warn_after:
            return False
        self._warned[priority] = now
        return True
