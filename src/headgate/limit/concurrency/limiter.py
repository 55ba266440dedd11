"""Admits requests to an origin: a request starts at once, waits in the queue, or is rejected."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from headgate.limit.concurrency.aimd import AimdLimit
from headgate.limit.concurrency.overload import Overload, Patience, ReturnTimes
from headgate.limit.concurrency.queue import PriorityQueue
from headgate.limit.concurrency.values import (
    PRIORITIES,
    RANKS,
    ConcurrencySettings,
    ConcurrencyState,
    Decision,
    Reason,
    Waiting,
)
from headgate.release import NEVER

_NOTHING: Final[Sequence[Decision]] = ()
_FIRST_DURATION: Final = 0.1
"""Seconds of a request, before completions have been measured."""
_SAMPLE: Final = 100
"""Completions over which the rate is averaged: with exponential times, it has an error of a tenth."""
_SAMPLE_SECONDS: Final = 1.0


class ConcurrencyLimit:
    """Decides which requests are in flight at an origin.

    `start` is called for each request; if it returns False, `queue` takes the request, and later calls decide on it.
    `responded` is called when its response begins, and `end` when its exchange is complete, whatever that is: until
    then it is in flight. Each call returns the decisions on waiting requests, in the order in which they are to be
    carried out. `awake` is due at `wakeup`. `now` is in seconds of any clock that is never set back, and `draw` returns
    random numbers from 0 to 1.

    In monitor mode every request starts; those that the queue would not take are counted as rejected.
    """

    def __init__(self, settings: ConcurrencySettings, draw: Callable[[], float]) -> None:
        self.settings = settings
        self.wakeup = NEVER
        """The instant at which `awake` is to be called; `NEVER` if it need not be. Read after each call but `start`."""
        self.in_flight = 0
        """Requests that have started and not ended."""
        self.uncounted = 0
        """Requests that are at the origin and count no more."""
        self._law = AimdLimit(settings.healthy_latency or math.inf, settings.ceiling)
        self._queue = PriorityQueue()
        self._overload = [Overload() for _ in PRIORITIES]
        self._returns = ReturnTimes(draw)
        self._rejected = [dict.fromkeys(Reason, 0) for _ in PRIORITIES]
        self._capacity = 0.0
        self._samples = self._wanted = False  # whether others want each permit that ends, and have since the last end
        self._sampled_at = 0.0
        self._ended = 0  # completions since then
        self._set_limit()

    # For each request.

    def start(self) -> bool:
        """Return whether a request that arrives now may start; if so, it is in flight."""
        if self.in_flight < self._permits:
            self.in_flight += 1
            return True
        return False

    def responded(self, latency: float) -> None:
        """Take that the response to a request in flight has begun, or timed out, after `latency` seconds."""
        if self._learns and self._law.responded(latency, self.in_flight):
            self._set_limit()

    def end(self, *, now: float) -> Sequence[Decision]:
        """Take the end of a request that was in flight."""
        self.in_flight -= 1
        if self._samples:
            self._measure(now)
        return self._decide(now) if self._queue.length else _NOTHING

    def uncount(self, *, now: float) -> Sequence[Decision]:
        """Take that a request in flight counts no more, although its exchange goes on."""
        self.uncounted += 1
        return self.end(now=now)

    # When requests wait.

    def queue(self, request: Waiting, *, now: float) -> Sequence[Decision]:
        """Take a request that could not start: it waits, or it or another one is rejected."""
        if not self._samples:
            self._samples, self._sampled_at, self._ended = True, now, 0
        self._wanted = True
        if self.settings.mode == "monitor":
            self.in_flight += 1
            if self.in_flight > self.limit + self.settings.queue:
                self._rejected[RANKS[request.priority]][Reason.FULL] += 1
            return (Decision(request, starts=True),)
        decisions: list[Decision] = []
        if self._queue.length >= self.settings.queue:
            victim = self._queue.victim(request)
            self._queue.remove(victim)
            self._reject(victim, Reason.FULL, now, decisions)
            if victim is request:
                return decisions
        self._queue.add(request)
        return [*decisions, *self._decide(now)]

    def leave(self, request: Waiting, *, now: float) -> Sequence[Decision]:
        """Remove a waiting request: its client has left."""
        return self._decide(now) if self._queue.remove(request) else _NOTHING

    def expire(self, request: Waiting, *, now: float) -> Sequence[Decision]:
        """Reject a waiting request: its caller waits no longer."""
        decisions: list[Decision] = []
        if self._queue.remove(request):
            self._reject(request, Reason.TIMEOUT, now, decisions)
            decisions.extend(self._decide(now))
        return decisions

    def awake(self, *, now: float) -> Sequence[Decision]:
        """Do what was due at `wakeup`."""
        return self._decide(now)

    # From outside of the requests.

    def reconfigure(self, settings: ConcurrencySettings, *, now: float) -> Sequence[Decision]:
        """Put other settings in force; what was learned stays, and the requests that are in flight or wait."""
        self.settings = settings
        self._law.reconfigure(settings.healthy_latency or math.inf, settings.ceiling)
        self._set_limit()
        decisions: list[Decision] = []
        while self._queue.length and settings.mode != "enforce":
            self._start_next(decisions)
        while self._queue.length > settings.queue:
            request = next(line for line in reversed(self._queue.lines) if line).newest_of_longest
            self._queue.remove(request)
            self._reject(request, Reason.FULL, now, decisions)
        return [*decisions, *self._decide(now)]

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        return ConcurrencyState(
            limit=self.limit,
            in_flight=self.in_flight,
            queued=self._queue.length,
            mode=self.settings.mode,
            uncounted=self.uncounted,
            latency=self._law.latency if self._learns else 0.0,
            overloaded=any(overload.is_on for overload in self._overload),
            capacity=self._capacity,
            waiting=dict(zip(PRIORITIES, map(len, self._queue.lines), strict=True)),
            rejected={
                priority: {reason.value: number for reason, number in rejected.items()}
                for priority, rejected in zip(PRIORITIES, self._rejected, strict=True)
            },
        )

    # Decisions.

    def _decide(self, now: float) -> Sequence[Decision]:
        """Start what there are permits for, reject what has waited for too long, and find the next wakeup."""
        decisions: list[Decision] = []
        queue, self.wakeup = self._queue, NEVER
        while queue.length and self.in_flight < self._permits:
            self._start_next(decisions)
        patience = Patience(self._rate, self.limit)
        for rank, (line, overload) in enumerate(zip(queue.lines, self._overload, strict=True)):
            overload.look(queue.ahead(rank), patience, now=now)
            while overload.is_on and line and line.oldest.since + patience.target <= now:
                request = line.oldest
                queue.remove(request)
                self._reject(request, Reason.WAITED, now, decisions)
            overload.look(queue.ahead(rank), patience, now=now)
            due = line.oldest.since + patience.target if overload.is_on and line else NEVER
            self.wakeup = min(self.wakeup, due, overload.wakeup(patience))
        return decisions

    def _start_next(self, decisions: list[Decision]) -> None:
        self.in_flight += 1
        decisions.append(Decision(self._queue.start(), starts=True))

    def _reject(self, request: Waiting, reason: Reason, now: float, decisions: list[Decision]) -> None:
        """Reject a request that is not in the queue any more."""
        rank = RANKS[request.priority]
        self._rejected[rank][reason] += 1
        seconds = self._returns.retry_after(rank, request.flow, self._queue.ahead(rank), self._rate, now=now)
        decisions.append(Decision(request, starts=False, retry_after=seconds))

    # The limit, and what is measured under it.

    @property
    def _rate(self) -> float:
        return self._capacity or self.limit / _FIRST_DURATION

    def _set_limit(self) -> None:
        settings = self.settings
        self._learns = settings.max == "learned"
        self.limit = self._law.limit if settings.max == "learned" else float(settings.max)
        """The number of requests that may be in flight now."""
        self._permits = math.inf if settings.mode == "off" else self.limit

    def _measure(self, now: float) -> None:
        """Count a completion; while others wait for each permit that ends, their rate is the capacity."""
        self._samples = self._wanted or self._queue.length > 0
        self._wanted = False
        self._ended += 1
        elapsed = now - self._sampled_at
        if elapsed >= _SAMPLE_SECONDS and self._samples:
            weight = self._ended / (self._ended + _SAMPLE) if self._capacity else 1.0
            self._capacity += (self._ended / elapsed - self._capacity) * weight
            self._sampled_at, self._ended = now, 0
