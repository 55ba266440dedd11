"""How fast one agent's requests go to each origin: its rate and concurrency, and what RateLimit fields leave.

This file knows neither clocks, locks nor HTTP libraries. Requests wait in the order in which they came, each with a
future that is done when it is worth asking again. A request is in flight until its response ends, or until the
head of that with libraries that do not say when it ends.
"""

from collections import OrderedDict
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Final, Literal, NamedTuple, TypeAlias

from headgate.errors import ConfigurationError
from headgate.limit.rule import Rule
from headgate.release import ASAP, NEVER
from headgate.throttle.fields import ThrottleFields

Concurrency: TypeAlias = int | Literal["adaptive"]

_MAX_ORIGINS: Final = 10_000
_FIRST_LIMIT: Final = 4.0
_MAX_LIMIT: Final = 64.0
"""Requests in flight with `concurrency="adaptive"`, at first and at most."""
_DECREASE: Final = 0.7
"""The factor of the limit when responses are slow."""
_SLOW: Final = 1.5
"""Responses are slow if their mean latency is this many times the best."""
_WEIGHT: Final = 0.3
"""The weight of a latency in the mean."""
_DRIFT: Final = 0.001
"""How fast the best latency follows the mean, so that an origin that stays slow becomes the standard."""
_MIN_LEARNED: Final = 60.0
"""Seconds for which the quota of a RateLimit-Policy is kept, at least; ten windows if that is more."""


class PaceWait(NamedTuple):
    """A request has to wait for its turn."""

    ready: "Future[None]"
    """Done when it is worth asking again."""
    release: float
    """When it may be sent, as far as that is known."""
    is_next: bool
    """Whether it is the next one, and waits for `release` only."""


class OriginPace:
    """The pace of one origin."""

    def __init__(self, limit: float) -> None:
        self.waiting: OrderedDict[object, Future[None]] = OrderedDict()
        self.in_flight = 0
        self.limit = limit
        self.delay = 0.0
        """Least seconds between two requests, as its robots.txt says."""
        self.arrival = ASAP
        """The theoretical arrival time of the next request at the configured rate (GCRA)."""
        self.sent = ASAP
        self.spread = 0.0
        """Seconds between two requests by RateLimit fields, until `spread_until`."""
        self.spread_until = ASAP
        self.latency = self.best = 0.0
        self.is_failing = False
        """Whether the last response was a failure: then one request at a time probes the origin."""
        self.probe: object = None
        """That request, until the head of its response; bodies of others may go on for long."""

    def release(self, rule: Rule | None, interval: float, now: float) -> float:
        """Return when the next request may be sent, with `interval` seconds between two by the rule."""
        learned = self.spread if self.spread_until > now else 0.0
        burst = 1 if rule is None else rule.burst
        # The clock may have been set back.
        self.sent, self.arrival = min(self.sent, now), min(self.arrival, now + burst * interval)
        return max(self.sent + max(self.delay, learned), self.arrival - (burst - 1) * interval)

    def send(self, interval: float, now: float) -> None:
        """Count a request that is sent."""
        self.in_flight += 1
        self.sent = now
        self.arrival = max(self.arrival, now) + interval

    def wake_next(self) -> None:
        """End the wait of the next request."""
        if self.waiting:
            with suppress(InvalidStateError):
                next(iter(self.waiting.values())).set_result(None)


class Pace:
    """The pace of all origins; `rate` is a rule such as "1/s burst 3", with a burst of 1 if it names none."""

    def __init__(self, rate: str | None, concurrency: Concurrency | None, longest_spread: float) -> None:
        self._rule = None
        if rate is not None:
            rule = Rule.parse(rate)
            self._rule = rule if "burst" in rate else Rule(rule.count, rule.period_ms, 1)
        self._is_adaptive = concurrency == "adaptive"
        if concurrency not in {None, "adaptive"} and (type(concurrency) is not int or concurrency < 1):
            raise ConfigurationError(f"concurrency must be at least 1, or 'adaptive', got {concurrency!r:.80}")
        self._limit = NEVER if concurrency is None else _FIRST_LIMIT if self._is_adaptive else float(concurrency)
        self._longest_spread = longest_spread
        self._origins: OrderedDict[str, OriginPace] = OrderedDict()

    def enter(self, origin: str, request: object, *, now: float) -> PaceWait | None:
        """Let a request be sent, and return None; or return what it has to wait for before it asks again."""
        pace = self._pace(origin)
        interval = self._interval(pace)
        release = pace.release(self._rule, interval, now) if interval or pace.delay or pace.spread else ASAP
        may_go = pace.in_flight < pace.limit and not (pace.is_failing and pace.probe)
        is_next = may_go and (not pace.waiting or next(iter(pace.waiting)) == request)
        if is_next and release <= now:
            pace.send(interval, now)
            pace.probe = request if pace.is_failing else None
            if pace.waiting:
                pace.waiting.pop(request, None)
                pace.wake_next()
            return None
        if request not in pace.waiting:
            release = max(release, now) + max(interval, pace.delay) * len(pace.waiting)
        ready = pace.waiting.get(request)
        if ready is None or ready.done():
            ready = pace.waiting[request] = Future()  # a request that has waited keeps its place
        return PaceWait(ready, release, is_next)

    def answered(self, origin: str, request: object, *, latency: float | None) -> None:
        """Adapt the concurrency to a response whose head came after `latency` seconds; None for a failure."""
        pace = self._pace(origin)
        pace.is_failing = latency is None
        if pace.probe == request:
            pace.probe = None
        if latency is not None and self._is_adaptive:
            self._adapt(pace, latency)
        pace.wake_next()

    def leave(self, origin: str, request: object) -> None:
        """End the wait of a request, or its flight."""
        pace = self._pace(origin)
        if pace.waiting and request in pace.waiting:
            del pace.waiting[request]
        elif pace.in_flight:
            pace.in_flight -= 1
        if pace.probe == request:
            pace.probe = None
        pace.wake_next()

    def learn(self, origin: str, fields: ThrottleFields, *, now: float) -> None:
        """Spread what remains of rate limits over their windows; of a used up limit, its quota."""
        pace = self._pace(origin)
        spread = [(seconds / remaining, seconds) for remaining, seconds in fields.rate_limits if remaining]
        if len(spread) < max(1, len(fields.rate_limits)):
            windows = [(seconds / quota, max(_MIN_LEARNED, 10 * seconds)) for quota, seconds in fields.quotas if quota]
            spread += windows
        if spread:
            longest, valid = max(spread)
            pace.spread, pace.spread_until = min(longest, self._longest_spread), now + valid

    def set_delay(self, origin: str, seconds: float) -> None:
        """Send no request to an origin sooner than so many seconds after the last."""
        self._pace(origin).delay = seconds

    def release(self, origin: str, *, now: float) -> float:
        """Return when the next request may be sent by the rate, without those that wait for it."""
        pace = self._pace(origin)
        return pace.release(self._rule, self._interval(pace), now)

    def reset(self) -> None:
        """Forget all requests, which belong to another process."""
        self._origins.clear()

    def _interval(self, pace: OriginPace) -> float:
        slowness = max(1.0, pace.latency / pace.best) if self._is_adaptive and pace.best else 1.0
        return self._rule.interval * slowness if self._rule else 0.0

    @staticmethod
    def _adapt(pace: OriginPace, latency: float) -> None:
        """Change the limit as TCP does: additive increase, and multiplicative decrease while responses are slow."""
        pace.latency = latency if not pace.best else pace.latency + _WEIGHT * (latency - pace.latency)
        pace.best = latency if not pace.best else min(latency, pace.best + _DRIFT * (pace.latency - pace.best))
        if pace.latency > _SLOW * pace.best:
            pace.limit = max(1.0, _DECREASE * pace.limit)
        else:
            pace.limit = min(_MAX_LIMIT, pace.limit + 1 / pace.limit)

    def _pace(self, origin: str) -> OriginPace:
        pace = self._origins.get(origin)
        if pace is None:
            pace = self._origins[origin] = OriginPace(self._limit)
            oldest, idle = next(iter(self._origins.items()))
            if len(self._origins) > _MAX_ORIGINS and not idle.waiting and not idle.in_flight:
                del self._origins[oldest]
        self._origins.move_to_end(origin)
        return pace
