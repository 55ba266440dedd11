"""Agents that fetch many pages: crawlers, whose connections share their pages, and browsers that prefetch."""

from headgate.lab.chance import Draw, exponential
from headgate.lab.policies import Headers
from headgate.lab.ticks.agents import CalendarAgent, Counts
from headgate.lab.ticks.origins import OK
from headgate.lab.ticks.settings import Crawlers, Prefetchers
from headgate.release import NEVER


class Crawl:
    """The pages of one crawler, which its connections share."""

    __slots__ = ("fetched", "left")

    def __init__(self, pages: int) -> None:
        self.left = pages
        """The pages that no connection has taken yet."""
        self.fetched = 0
        """The pages that were answered."""

    def take(self) -> bool:
        """Take a page; return whether there was one."""
        if not self.left:
            return False
        self.left -= 1
        return True


class Connection(CalendarAgent):
    """A connection of a crawler: it takes a page, requests it until it is answered, and takes the next one."""

    __slots__ = ("_crawl", "_start", "interval", "retry")

    def __init__(self, number: int, group: Crawlers, counts: Counts, draw: Draw, *, crawl: Crawl) -> None:
        super().__init__(number, group, counts, draw)
        self.interval = group.interval
        self.retry = group.retry
        self._start = group.start
        self._crawl = crawl

    def first(self) -> float:
        """Return the seconds until the first attempt; `NEVER` if there is no page for this connection."""
        # Draws the start.
        start = self._start * self.draw()
        return start if self._crawl.take() else NEVER

    def attempt(self, now: float) -> float | None:
        """Return None if the connection sends a request, otherwise the seconds until its next attempt."""
        self.choose_origin()
        release = self.policy.release(now=now)
        if release > now:
            self.counts.refused += 1
            return release - now
        return None

    def answered(self, status: int, headers: Headers, now: float) -> float:
        """Take the response; return the seconds until the next attempt, `NEVER` after the last page."""
        self.policy.received(status, headers, now=now)
        if status == OK:
            self.succeeded()
            self._crawl.fetched += 1
            return self.interval if self._crawl.take() else NEVER
        return self.failed(now)

    def own_pause(self) -> float:
        """Return the seconds after which the connection tries again after a failure."""
        return self.retry


class Prefetcher(CalendarAgent):
    """A browser that prefetches a page from time to time; a prefetch that is refused or fails is not tried again."""

    __slots__ = ("think",)

    def __init__(self, number: int, group: Prefetchers, counts: Counts, draw: Draw) -> None:
        super().__init__(number, group, counts, draw)
        self.think = group.think

    def first(self) -> float:
        """Return the seconds until the first prefetch."""
        return exponential(self.think, self.draw)

    def attempt(self, now: float) -> float | None:
        """Return None if the browser sends a request, otherwise the seconds until its next prefetch."""
        self.choose_origin()
        if self.policy.release(now=now) > now:
            self.counts.refused += 1
            return exponential(self.think, self.draw)
        return None

    def answered(self, status: int, headers: Headers, now: float) -> float:
        """Take the response; return the seconds until the next prefetch."""
        self.policy.received(status, headers, now=now)
        if status == OK:
            self.counts.answered += 1
            self.origin.useful += 1
        else:
            self.counts.failed += 1
        return exponential(self.think, self.draw)
