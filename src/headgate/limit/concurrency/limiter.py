"""Admits requests to an origin: a request starts at once, waits in the queue, or is refused."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from headgate.limit.concurrency.learned import LearnedLimit
from headgate.limit.concurrency.overload import OverloadDetector
from headgate.limit.concurrency.queue import RANKS, PriorityQueue
from headgate.limit.concurrency.request_duration import SAMPLE, RequestDuration
from headgate.limit.concurrency.retry_after import ReturnTimes
from headgate.limit.concurrency.values import (
    CONFIGURED,
    PRIORITIES,
    ConcurrencySettings,
    ConcurrencyState,
    Decision,
    Outcome,
    Reason,
    Waiting,
)
from headgate.release import NEVER

_NOTHING: Final[Sequence[Decision]] = ()
_FIRST_DURATION: Final = 0.1
"""Seconds of a request, before any has ended. Chosen: what a page takes; the first sample replaces it."""
_LEAST_RATE: Final = 0.05
"""The share of the completions that a class is assumed to get, at least.

Chosen: a class that gets nothing would be asked to wait for ever. It was not tried with other values.
"""


class ConcurrencyLimit:
    """Decides which requests are in flight at an origin.

    `start` is called for each request; if it returns False, `queue` takes the request, and later calls decide on it.
    `end` is called when a request that was in flight ends. Each call returns the decisions on waiting requests, in the
    order in which they are to be carried out. `awake` is due at `wakeup`. `now` is in seconds of any clock that is
    never set back, and `draw` returns random numbers from 0 to 1. Not for streams, such as WebSockets: their duration
    says nothing of the load.

    In monitor mode every request starts, `queue` included, and the queue has the requests that would wait: they take
    no place until they would start. What would be refused is counted, and takes a place until it ends.
    """

    def __init__(self, settings: ConcurrencySettings, draw: Callable[[], float]) -> None:
        self.settings = settings
        self.wakeup = NEVER
        """The instant at which `awake` is to be called; `NEVER` if it need not be. Read after each call but `start`."""
        self.in_flight = 0
        """Requests that have started and not ended."""
        self._learned = LearnedLimit(settings)
        self._learns = settings.max == "learned"
        self.limit = self._learned.limit if settings.max == "learned" else float(settings.max)
        """The number of requests that may be in flight now."""
        self._draw = draw
        self._queue = PriorityQueue()
        self._duration = RequestDuration(_FIRST_DURATION)
        self._overload = OverloadDetector()
        self._returns = ReturnTimes(draw)
        self._started = [0] * len(PRIORITIES)  # after they have waited
        self._refused = [dict.fromkeys(Reason, 0) for _ in PRIORITIES]
        self._sampled = list(self._started)  # the starts when the last sample ended
        self._shares = [0.0] * len(PRIORITIES)  # starts per second in the last sample
        self._ended = 0  # in this sample
        self._area = 0.0  # the sums of the instants of ends, less those of starts, in this sample
        self._forgets_at = 0.0
        self._monitors = settings.mode == "monitor"
        self._room = 0.0  # a request starts at once if fewer are in flight
        self._rates: list[float] = []  # requests per second that each class gets
        self._adapt()

    # For each request.

    def start(self, *, now: float) -> bool:
        """Return whether a request that arrives now may start; if so, it is in flight."""
        if self.in_flight < self._room:
            self.in_flight += 1
            self._area -= now
            return True
        return False

    def end(self, domain: str, latency: float, outcome: Outcome, *, now: float) -> Sequence[Decision]:
        """Take the end of a request of a domain, whose response took `latency` seconds to begin."""
        if self._learns and self._learned.ended(domain, latency, outcome, self.in_flight, now=now):
            self.limit = self._learned.limit
            self._limit_changed()
        self.in_flight -= 1
        self._area += now
        self._ended += 1
        if self._ended >= SAMPLE:
            self._measure(now)
        return self._decide(now) if self._queue.length else _NOTHING

    def enter(self, *, now: float) -> None:
        """Count a request as in flight whatever the limit is: the origin has it already."""
        self.in_flight += 1
        self._area -= now

    # When requests wait.

    def queue(self, request: Waiting, *, now: float) -> Sequence[Decision]:
        """Take a request that could not start: it waits, or it or another one is refused."""
        decisions: list[Decision] = []
        if self._monitors:
            self.enter(now=now)
            decisions.append(Decision(request, starts=True))
        victim, reason = self._victim(request)
        if victim is not None:
            if victim is not request:
                self._queue.remove(victim)
            self._refuse(victim, reason, now, decisions)
        if victim is not request:
            self._queue.add(request)
            decisions.extend(self._decide(now))
        return decisions or _NOTHING

    def leave(self, request: Waiting, *, now: float) -> Sequence[Decision]:
        """Remove a waiting request: its client has left."""
        return self._decide(now) if self._queue.remove(request) else _NOTHING

    def awake(self, *, now: float) -> Sequence[Decision]:
        """Do what was due at `wakeup`."""
        return self._decide(now)

    # From outside of the requests.

    def reconfigure(self, settings: ConcurrencySettings, *, now: float) -> Sequence[Decision]:
        """Put other settings in force; what was learned stays, and the requests that are in flight or wait."""
        was_monitoring, self._monitors = self._monitors, settings.mode == "monitor"
        self.settings = settings
        self._learned.reconfigure(settings)
        self._learns = settings.max == "learned"
        self.limit = self._learned.limit if settings.max == "learned" else float(settings.max)
        self._adapt()
        decisions: list[Decision] = []
        if settings.mode != "enforce" or was_monitoring:
            decisions = self._start_all(now, in_flight=was_monitoring)
        while self._queue.length > settings.queue:
            request = self._queue.lines[self._queue.lowest(0)].newest_of_longest
            self._queue.remove(request)
            self._refuse(request, Reason.FULL, now, decisions)
        return [*decisions, *self._decide(now)]

    def lagged(self, seconds: float) -> None:
        """Take a delay of the caller's event loop; one above 50 ms means that the gate itself is overloaded."""
        self._learned.lagged(seconds)

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        return ConcurrencyState(
            self.limit,
            self.in_flight,
            self._queue.length,
            self.settings.mode,
            self._learned.reason.value if self._learns else CONFIGURED,
            self._learned.baseline,
            dict(zip(PRIORITIES, map(len, self._queue.lines), strict=True)),
            dict(zip(PRIORITIES, self._started, strict=True)),
            {
                priority: {reason.value: number for reason, number in refused.items()}
                for priority, refused in zip(PRIORITIES, self._refused, strict=True)
            },
            any(self._overload.overloaded),
            self._duration.smoothed,
            self._learned.capacity.rate,
            {reason.value: number for reason, number in self._learned.changes.items()},
        )

    # Decisions.

    def _decide(self, now: float) -> Sequence[Decision]:
        """Start what there are places for, refuse what has waited for too long, and find the next wakeup."""
        decisions: list[Decision] = []
        queue = self._queue
        if self._duration.is_due(self._ended, now=now):
            self._measure(now)
        while queue.length and self._taken() < self.limit:
            self._start_next(now, decisions)
        self._look(now)
        if self._refuse_overdue(now, decisions):
            self._look(now)
        self._set_wakeup()
        return _NOTHING if self._monitors else decisions or _NOTHING

    def _look(self, now: float) -> None:
        """Show the detector of overload which classes wait."""
        ahead = 0
        for rank, line in enumerate(self._queue.lines):
            ahead += len(line)
            self._overload.look(rank, ahead, now=now)

    def _refuse_overdue(self, now: float, decisions: list[Decision]) -> bool:
        """Refuse what has waited for too long in overloaded classes; returns whether there was such a request."""
        queue, overload, found = self._queue, self._overload, False
        for rank, line in enumerate(queue.lines):
            while overload.overloaded[rank] and line and line.oldest.since + overload.target <= now:
                queue.remove(request := line.oldest)
                self._refuse(request, Reason.WAITED, now, decisions)
                found = True
        return found

    def _set_wakeup(self) -> None:
        overload, self.wakeup = self._overload, NEVER
        for rank, line in enumerate(self._queue.lines):
            if line and overload.overloaded[rank]:
                self.wakeup = min(self.wakeup, line.oldest.since + overload.target)
            self.wakeup = min(self.wakeup, overload.wakeup(rank))

    def _start_next(self, now: float, decisions: list[Decision]) -> None:
        rank = next(rank for rank, line in enumerate(self._queue.lines) if line)
        request = self._queue.start(rank, newest=self._overload.overloaded[rank])
        self._started[rank] += 1
        if not self._monitors:
            self.enter(now=now)
            decisions.append(Decision(request, starts=True))

    def _victim(self, request: Waiting) -> tuple[Waiting | None, Reason]:
        """Return which request, if any, is to be refused because of a new one, and why.

        If the queue is full, that is one of the least important class. Otherwise it is one of the class of the new
        request, with a probability that grows linearly from 0 at half of the places to 1 at all of them; a class does
        not count those below it. Of the class, the newest request of the flow with the most waiting ones gives way.
        """
        queue, size, rank = self._queue, self.settings.queue, RANKS[request.priority]
        if queue.length >= size:
            return queue.lines[queue.lowest(rank)].victim(request), Reason.FULL
        if self._overload.overloaded[rank]:
            size = min(size, self._overload.places)
        excess = 2 * queue.ahead(rank) - size
        if excess > 0 and self._draw() * size < excess:
            return queue.lines[rank].victim(request), Reason.FILLING
        return None, Reason.FILLING

    def _refuse(self, request: Waiting, reason: Reason, now: float, decisions: list[Decision]) -> None:
        """Refuse a request that is not in the queue any more."""
        rank = RANKS[request.priority]
        self._refused[rank][reason] += 1
        if not self._monitors:
            seconds = self._returns.retry_after(rank, self._queue.ahead(rank), self._rates[rank], now=now)
            decisions.append(Decision(request, starts=False, retry_after=seconds))

    def _start_all(self, now: float, *, in_flight: bool) -> list[Decision]:
        """Empty the queue; `in_flight` requests have started already."""
        decisions: list[Decision] = []
        for line in self._queue.lines:
            while line:
                request = line.oldest
                self._queue.remove(request)
                if not in_flight:
                    self.enter(now=now)
                    decisions.append(Decision(request, starts=True))
        return decisions

    # Places, and what is measured of them.

    def _taken(self) -> int:
        """Return the number of requests that take a place."""
        return self.in_flight - self._queue.length if self._monitors else self.in_flight

    def _limit_changed(self) -> None:
        """Work out what each request needs of the limit and the duration of a request."""
        self._room = math.inf if self.settings.mode == "off" else self.limit
        # A class gets what the classes above it leave.
        completed, above = self.limit / self._duration.recent, [0.0, *accumulate(self._shares)]
        self._rates = [max(completed - starts, _LEAST_RATE * completed) for starts in above]

    def _measure(self, now: float) -> None:
        duration = self._duration
        elapsed = now - duration.began
        if elapsed <= 0.0:
            return  # a coarse clock: the sample goes on until the clock has moved
        duration.measure(self._area + self.in_flight * now, self._ended, now=now)
        self._shares = [(after - before) / elapsed for before, after in zip(self._sampled, self._started, strict=True)]
        self._sampled = list(self._started)
        self._ended, self._area = 0, -self.in_flight * now
        if now >= self._forgets_at:
            for line in self._queue.lines:
                line.forget()
            self._forgets_at = now + self._overload.interval
        self._adapt()

    def _adapt(self) -> None:
        self._overload.adapt(self._duration.smoothed, self.limit, self.settings.queue_target)
        self._limit_changed()
