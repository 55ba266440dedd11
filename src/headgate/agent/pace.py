"""How fast one agent's requests go to each origin: its rate and concurrency, and what RateLimit fields leave.

This file knows neither clocks, locks nor HTTP libraries. Requests wait in the order in which they came, each with a
future that is done when it is worth asking again. A request is in flight until its response ends, or until the
head of that with libraries that do not say when it ends.

After a failure of an origin, requests come back as those of a TCP connection after a timeout (RFC 5681, slow start):
one, until it succeeds; then the number of requests without a response doubles with each round of successes, up to half
of what there were before the failure; from there it grows by one each round. A 429 is not a failure of the origin: as
after a mark by ECN (RFC 3168), there are half of them at once.
"""

from collections import OrderedDict
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
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
_MAX_SLOWNESS: Final = 10.0
"""A latency counts as this many times the best at most: one request that hangs must not stop the others."""
_DRIFT: Final = 0.001
"""How fast the best latency follows the mean, so that an origin that stays slow becomes the standard."""
_LEAST_THRESHOLD: Final = 2.0
"""Requests without a response up to which their number doubles, at least."""
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


OriginState: TypeAlias = Literal["up", "limiting", "down", "unknown"]
"""What the end of a request shows: a success, a rejection by 429, another failure, or nothing."""


class PaceSettings(NamedTuple):
    """What the paces of all origins have in common."""

    rule: Rule | None
    is_adaptive: bool
    limit: float
    """Requests in flight at first."""
    longest_spread: float
    """Seconds between two requests at most by RateLimit fields."""


class OriginPace:
    """The pace of one origin."""

    def __init__(self, settings: PaceSettings) -> None:
        self._settings = settings
        self._waiting: OrderedDict[object, Future[None]] = OrderedDict()
        self._in_flight = 0
        self._limit = settings.limit
        self._unanswered = 0
        """Requests in flight without a response that were sent after the last failure: others may hang, and the bodies
        of those with a response may go on for long."""
        self._window = NEVER
        """Their greatest number, once a request has failed."""
        self._threshold = NEVER
        """The window up to which it doubles with each round of successes."""
        self._failed = ASAP
        """When the window was last reduced."""
        self.delay = 0.0
        """Least seconds between two requests, as its robots.txt says."""
        self._arrival = ASAP
        """The theoretical arrival time of the next request at the configured rate (GCRA)."""
        self._full_at = ASAP
        """When the first request of a burst was sent, until the first response after it."""
        self._sent = ASAP
        self._spread = 0.0
        """Seconds between two requests by RateLimit fields, until `_spread_until`."""
        self._spread_until = ASAP
        self._latency = self._best = 0.0
        self._interval = settings.rule.interval if settings.rule else 0.0
        """Seconds between two requests by the rule: more while responses are slow."""

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or is in flight."""
        return not self._waiting and not self._in_flight

    def enter(self, request: object, *, now: float) -> PaceWait | None:
        """Let a request be sent, and return None; or return what it has to wait for before it asks again."""
        if self._failed > now:
            self._failed = now  # the clock was set back
        release = self.release(now=now)
        may_go = self._in_flight < self._limit and self._unanswered < self._window
        is_next = may_go and (not self._waiting or next(iter(self._waiting)) == request)
        if is_next and release <= now:
            self._in_flight += 1
            self._unanswered += 1
            self._sent = now
            if self._arrival + self._interval <= now:
                self._full_at = now
            self._arrival = (self._arrival if self._arrival > now else now) + self._interval
            if self._waiting:
                self._waiting.pop(request, None)
                self._wake_next()
            return None
        if request not in self._waiting:
            release = max(release, now) + max(self._interval, self.delay) * len(self._waiting)
        ready = self._waiting.get(request)
        if ready is None or ready.done():
            ready = self._waiting[request] = Future()  # a request that has waited keeps its place
        return PaceWait(ready, release, is_next)

    def answered(self, state: OriginState, *, sent: float, now: float) -> None:
        """Adapt to the end of the wait for a response, which shows this state of the origin.

        Requests that were sent before the last failure change nothing: those that fail together count once.
        """
        is_new = sent >= self._failed
        if is_new:
            self._unanswered -= self._unanswered > 0
        if sent >= self._full_at > ASAP:
            # The origin counts the first request of a burst when it arrives: at the latest now. Without this, the first
            # one behind the burst comes too early by the time that the first was under way.
            self._arrival, self._full_at = self._arrival + max(0.0, now - self._full_at), ASAP
        if state in {"limiting", "down"}:
            if is_new:
                if self._window > 1:  # "held constant" while the first retransmission fails (RFC 5681, section 3.1)
                    self._threshold = max(_LEAST_THRESHOLD, (self._unanswered + 1) / 2)
                self._window = 1.0 if state == "down" else self._threshold
                self._failed, self._unanswered = now, 0
        elif state == "up":
            if is_new:
                self._window += 1.0 if self._window < self._threshold else 1.0 / self._window
            if self._settings.is_adaptive and now > sent:  # else the clock was set back, or stands still in a test
                self._adapt(now - sent)
        if self._waiting:
            self._wake_next()

    def leave(self, request: object) -> None:
        """End the wait of a request, or its flight."""
        if self._waiting.pop(request, None) is None and self._in_flight:
            self._in_flight -= 1
        self._wake_next()

    def forget_requests(self) -> None:
        """Forget those that wait or are in flight."""
        self._waiting, self._in_flight, self._unanswered = OrderedDict(), 0, 0

    def learn(self, fields: ThrottleFields, *, now: float) -> None:
        """Spread what remains of rate limits over their windows; of a used up limit, its quota."""
        spread = [(seconds / remaining, seconds) for remaining, seconds in fields.rate_limits if remaining]
        if len(spread) < max(1, len(fields.rate_limits)):
            spread += [(seconds / quota, max(_MIN_LEARNED, 10 * seconds)) for quota, seconds in fields.quotas if quota]
        if spread:
            longest, valid = max(spread)
            self._spread, self._spread_until = min(longest, self._settings.longest_spread), now + valid

    def release(self, *, now: float) -> float:
        """Return when the next request may be sent by the rate, without those that wait for it."""
        rule, spacing = self._settings.rule, self.delay
        burst = 1 if rule is None else rule.burst
        if self._sent > now:  # the clock was set back
            back, self._sent = self._sent - now, now
            self._arrival = min(self._arrival - back, now + burst * self._interval)
            self._full_at, self._spread_until = ASAP, self._spread_until - back
        if self._spread_until > now:
            spacing = max(spacing, self._spread)
        release, arrival = self._sent + spacing, self._arrival - (burst - 1) * self._interval
        return arrival if arrival > release else release  # quicker than `max`

    def _adapt(self, latency: float) -> None:
        """Change the limit as TCP does: additive increase, and multiplicative decrease while responses are slow."""
        latency = min(latency, _MAX_SLOWNESS * self._best or latency)
        self._latency = latency if not self._best else self._latency + _WEIGHT * (latency - self._latency)
        self._best = latency if not self._best else min(latency, self._best + _DRIFT * (self._latency - self._best))
        if self._settings.rule is not None:
            self._interval = self._settings.rule.interval * max(1.0, self._latency / self._best)
        if self._latency > _SLOW * self._best:
            self._limit = max(1.0, _DECREASE * self._limit)
        else:
            self._limit = min(_MAX_LIMIT, self._limit + 1 / self._limit)

    def _wake_next(self) -> None:
        """End the wait of the next request."""
        if self._waiting:
            with suppress(InvalidStateError):
                next(iter(self._waiting.values())).set_result(None)


class Pace:
    """The pace of all origins; `rate` is a rule such as "1/s burst 3", with a burst of 1 if it names none."""

    def __init__(self, rate: str | None, concurrency: Concurrency | None, longest_spread: float) -> None:
        rule = None if rate is None else Rule.parse(rate)
        if rule is not None and "burst" not in str(rate):
            rule = Rule(rule.count, rule.period_ms, 1)
        is_adaptive = concurrency == "adaptive"
        if concurrency not in {None, "adaptive"} and (type(concurrency) is not int or concurrency < 1):
            raise ConfigurationError(f"concurrency must be at least 1, or 'adaptive', got {concurrency!r:.80}")
        limit = NEVER if concurrency is None else _FIRST_LIMIT if is_adaptive else float(concurrency)
        self._settings = PaceSettings(rule, is_adaptive, limit, longest_spread)
        self._origins: dict[str, OriginPace] = {}

    def of(self, origin: str) -> OriginPace:
        """Return the pace of an origin."""
        pace = self._origins.pop(origin, None)
        if pace is None:
            if len(self._origins) >= _MAX_ORIGINS:
                idle = next((name for name, each in self._origins.items() if each.is_idle), "")
                self._origins.pop(idle, None)
            pace = OriginPace(self._settings)
        self._origins[origin] = pace  # the last one: the first is dropped first
        return pace

    def reset(self) -> None:
        """Forget all requests, which belong to another process; what is known of the origins stays."""
        for origin, pace in self._origins.items():
            self._origins[origin] = copy(pace)  # those requests may still end at the old one
            self._origins[origin].forget_requests()
