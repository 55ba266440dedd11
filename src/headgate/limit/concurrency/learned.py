"""Learns how many requests an origin can work on at once, from their latencies and their rate.

By Little's law, the completions per second times the latency without a queue (the baseline) are the requests that an
origin works on; what else is in flight waits in a queue there. While the limit is reached, these two numbers say
whether it is too high. Neither is certain: a longer latency is a queue, or work that takes longer, and a baseline is a
mean of few requests. So each change of the limit is a *trial*: the throughput before and after it is compared, and

- a lower limit stays only if the throughput does not fall with it. If it does, there was no queue: the limit returns,
  and the latencies that were measured are the new baseline;
- a higher limit stays only if the throughput rises with it.

While the limit is not reached, it stays as it is, and responses tell the baseline. At the start, with neither, each
response permits one request more, as long as the throughput follows. Only an origin that is overloaded from the start
gets a lower limit in order to measure: step by step, until the throughput falls.
"""

from math import ceil, floor, inf, log, sqrt
from typing import Final, NamedTuple

from headgate.limit.concurrency.capacity import LearnedCapacity
from headgate.limit.concurrency.measurement import FULL, DomainWindow, Measurement, Window, close_window
from headgate.limit.concurrency.values import ConcurrencySettings, Outcome

FIRST_LIMIT: Final = 20
"""Requests in flight before anything is known."""
MAX_LAG: Final = 0.05
"""Seconds of delay of the event loop, beyond which the gate itself is overloaded."""

_ANSWERED: Final = Outcome.ANSWERED
_TIMED_OUT: Final = Outcome.TIMED_OUT
_WINDOW: Final = 0.1
"""Seconds after which what has ended is looked at."""
_HEADROOM: Final = 1.1
"""The target is this multiple of the requests that the origin works on, and one more, so that it never idles.

With 1.0, a baseline that is a twentieth too low costs goodput: 0.92 instead of 0.97 at the worst of 32 steps.
"""
_TOO_HIGH: Final = 0.9
"""A target below this share of the limit is worth a trial."""
_NO_QUEUE: Final = 0.95
"""Above this share of the latency without a queue, a higher limit is worth a trial."""
_NO_QUEUE_IN_GROWTH: Final = 0.9
"""That share while higher limits have led to higher throughputs."""
_SATURATED: Final = 0.8
"""The share of requests that end at the limit, from which on throughput depends on the limit and not on demand."""
_OFTEN_FULL: Final = 0.2
"""From this share on a limit is too low if no requests wait at the origin: they wait in front of it for a moment."""
_ABANDONED: Final = 0.5
"""Below this share a trial ends without a result."""
_RECENT: Final = 100
"""Requests over which the saturation is averaged."""
_RECENT_TIMEOUTS: Final = 50
"""Requests over which the share of timeouts is averaged: in a single window, three of ten can be most by chance."""
_LOOK: Final = 100
"""Requests after which a measurement is looked at."""
_RESTART: Final = 300
"""Requests after which a measurement that asks for no trial begins anew."""
_FEWEST: Final = 150
"""Requests of a trial, at least: with exponential times, a baseline of as many has an error of a twelfth."""
_MOST: Final = 600
"""Requests of a trial, at most: they tell a sixth more from chance in nineteen of twenty trials."""
_MIN_LEARNED: Final = 20
"""Responses of a domain from which its baseline is replaced after a trial."""
_FIRST_PROBE_INTERVAL: Final = 2.0
_PROBE_INTERVAL: Final = 15.0
"""Seconds at a limit, or after trials of a higher one that failed, until a higher one is tried.

Without such trials, a baseline that is too low keeps a limit of 0.7 of the knee for ever.
"""
_FIRST_LOOK: Final = 60
"""Requests of a round at the start, at least."""
_FIRST_GROWTH: Final = 1.5
"""The growth of the requests in flight from which on the throughputs of two rounds at the start are compared."""
_ABOVE_KNEE: Final = 1.05
"""The limit, as a multiple of the knee that a failed trial of a higher one has shown, at most."""
_DRAIN: Final = 1.1
"""More requests in flight than this multiple of the limit are of a former limit: they say nothing of this one."""
_FEW_SLOW: Final = 0.05
"""Up to this share of responses above the healthy latency, a higher limit is tried."""
_MANY_SLOW: Final = 0.1
"""From this share on, the limit is lowered."""
_REDUCTION: Final = 0.9
"""The factor of a limit that is lowered without a trial, and of the knee after one, at least."""
_GROWTH: Final = 1.2
"""The factor of a higher limit that is tried. A limit of 1.2 times the knee must not put more than 1.5 in flight."""
_SEARCH: Final = 0.5
"""The factor of a lower limit when no baseline is known: any that makes the queue end tells the knee.

With 0.4, a start in overload gets 0.65 of the capacity in its first seconds at the worst of four, with 0.5 0.79. With
0.6, the limit is up to 1.5 times the knee in an hour of overload.
"""


class Trial(NamedTuple):
    """A change of the limit that is judged by what it does to the throughput."""

    limit: float
    """The limit before it."""
    before: Measurement
    requests: int
    """The number of requests needed to judge it."""


class LearnedLimit:
    """A limit of the requests in flight that follows the capacity of an origin. See the module."""

    def __init__(self, settings: ConcurrencySettings) -> None:
        self.limit = 0.0
        """The limit now."""
        self.reason = "start"
        """Why it was changed last."""
        self.baseline = 0.0
        """Seconds that a response takes without a queue at the origin, the mean of the last window; 0 if not known."""
        self.capacity = LearnedCapacity()
        """The requests per second that the origin answers at most."""
        self._settings = settings
        self._domains: dict[str, DomainWindow] = {}
        self._started = 0.0  # the window
        self._due = inf
        self._saturation = 0.0
        self._timed_out = 0.0  # the share of the last requests
        self._often_full = 0.0
        self._lagged = False
        self._measurement = Measurement()
        self._settled = 0.0  # what begins now ends then
        self._turnover = FIRST_LIMIT  # the number of requests that end before they show what the limit does
        self._since = 0.0  # the limit is what it is
        self._proposed = ""  # the reason for which the last measurement asked for a trial
        self._trial: Trial | None = None
        self._threshold = inf  # below half of it the limit is doubled, as at the start
        self._next_probe = 0.0
        self._probe_interval = _FIRST_PROBE_INTERVAL
        self._searches = False
        self._starts = True  # neither a limit that is too high nor a baseline is known
        self._first: Measurement | None = None  # the round at the start with which later ones are compared
        self._put(FIRST_LIMIT)

    def reconfigure(self, settings: ConcurrencySettings) -> None:
        """Put other settings in force; what was learned stays."""
        self._settings = settings
        self._put(self.limit)

    def ended(self, domain: str, latency: float, outcome: Outcome, in_flight: int, *, now: float) -> bool:
        """Take the end of a request, which `in_flight` counts, too; returns whether the limit has changed."""
        try:
            window = self._domains[domain]
        except KeyError:
            window = self._domains[domain] = DomainWindow()
            if self._due == inf:
                self._started, self._due = now, now + _WINDOW
        if outcome is _ANSWERED:
            window.answered += 1
            window.seconds += latency
            if in_flight > self._half:
                window.loaded += 1
                window.loaded_seconds += latency
        elif outcome is _TIMED_OUT:
            window.timeouts += 1
            latency = inf
        else:
            return False
        window.in_flight += in_flight
        if in_flight >= self._full:
            window.full += 1
        if latency > self._healthy:
            window.slow += 1
        if now < self._due:
            return False
        before = self.limit
        self._close(now)
        return self.limit != before

    def lagged(self, seconds: float) -> None:
        """Take a delay of the event loop."""
        if seconds > MAX_LAG:
            self._lagged = True

    def _close(self, now: float) -> None:
        """End a window, and change the limit if there is a reason."""
        window = close_window(self._domains, now - self._started)
        self._started, self._due = now, now + _WINDOW
        if window.answered:
            self.baseline = window.work / window.answered
        self._saturation += (window.full - self._saturation) * window.requests / (window.requests + _RECENT)
        self._starts = self._starts and not any(domain.baseline.is_estimated for domain in self._domains.values())
        if self._saturation >= _SATURATED:
            self.capacity.add(window.answered, window.seconds)
        if self._settings.freeze:
            return
        if not self._reduce(window, now):
            if self._starts and self._settings.mode != "monitor":
                self._grow(window, now)
            elif self._saturation < _SATURATED:
                self._follow_demand(window, now)
            elif self._settings.mode == "monitor":
                self._estimate(window, now)
            elif now < self._settled or self._turnover > 0:
                self._turnover -= window.requests
            elif window.in_flight <= self.limit * _DRAIN + 1:
                self._measure(window, now)

    def _reduce(self, window: Window, now: float) -> bool:
        """Lower the limit without a trial if most requests time out, or the gate itself is overloaded."""
        lagged, self._lagged = self._lagged, False
        factor, reason = 1.0, ""
        share, weight = window.timeouts / window.requests, window.requests / (window.requests + _RECENT_TIMEOUTS)
        self._timed_out += (share - self._timed_out) * weight
        if self._timed_out > 0.5:
            if window.full > 0.5:  # one half for each set of requests in flight
                factor, reason = 1.0 - 0.5 * min(1.0, window.requests / self.limit), "timeouts"
        elif lagged and window.in_flight >= self.limit / 2 and now >= self._settled:
            factor, reason = _REDUCTION, "event loop"
        else:
            return False
        self._starts = False
        if reason and self.limit > self._settings.floor:
            if self.reason != reason:
                self._threshold, self._probe_interval = self.limit, _FIRST_PROBE_INTERVAL
            self._set(self.limit * factor, reason, now)
            self._settled = max(self._settled, now + 1.0) if lagged else now
        self._trial = None
        return True

    def _follow_demand(self, window: Window, now: float) -> None:
        """Keep the limit while it is not reached all the time; raise it while it is often reached without a queue."""
        if self._saturation < _ABANDONED and self._measurement.requests:
            if self._trial is not None:
                self._set(min(self._trial.limit, self.limit), "not reached", now)
            self._trial = None
            self._restart()
        if self._trial is None and window.full > _OFTEN_FULL and window.work > 0.9 * window.in_flight * window.seconds:
            self._often_full += window.requests * window.full
            if self._often_full >= _LOOK:
                self._often_full = 0.0
                self._set(self.limit + 1.0, "often reached", now)

    def _estimate(self, window: Window, now: float) -> None:
        """Set the limit to the target: nothing obeys it, so a trial would prove nothing."""
        self._measurement.add(window)
        if self._measurement.requests >= _LOOK:
            self._set(self._target(self._measurement), "estimate", now)

    def _grow(self, window: Window, now: float) -> None:
        """At the start, permit one request more for each that ends, as long as the throughput rises with the limit.

        So the limit is at most doubled within a round. The throughput of a round is compared with that of an earlier
        one only if far more requests were in flight: otherwise it is the demand that did not rise.
        """
        if window.full < _SATURATED:
            self._restart()
            return
        measurement, first = self._measurement, self._first
        measurement.add(window)
        self._put(min(self.limit + window.answered, 2.0 * self._turnover))
        if measurement.requests < max(self._turnover, _FIRST_LOOK) or measurement.seconds < 2.0 * self.baseline:
            return
        slow, gains = measurement.slow > _MANY_SLOW * measurement.requests, True
        if first is None:
            self._first = measurement
        elif (growth := measurement.in_flight / first.in_flight) >= _FIRST_GROWTH:
            self._first, gains = measurement, measurement.rate > sqrt(growth) * first.rate
        if slow or not gains:
            self._starts, self._searches = False, True
            self._next_probe = now + self._probe_interval
            self._threshold = self.limit / 2.0
            self._set(self._threshold, "slow" if slow else "no gain", now)
            return
        self._starts = self.limit < self._settings.ceiling
        self._set(self.limit, "start", now)

    def _measure(self, window: Window, now: float) -> None:
        measurement = self._measurement
        measurement.add(window)
        if self._trial is not None:
            if measurement.requests >= self._trial.requests:
                self._judge(self._trial, measurement, now)
        elif measurement.requests >= _LOOK:
            self._consider(measurement, now)

    def _consider(self, measurement: Measurement, now: float) -> None:
        """Begin a trial if two measurements in succession ask for it: the first may be older than a change."""
        if measurement.slow > _MANY_SLOW * measurement.requests:
            self._set(self.limit * _REDUCTION, "slow", now)
            return
        limit, reason = self._goal(measurement, now)
        if limit == self.limit:
            self._searches = False
            if measurement.requests >= _RESTART:
                self._restart()
            return
        needed = _requests_needed(limit / self.limit)
        if self._proposed != reason != "search":
            self._restart()
            self._proposed = reason
        elif measurement.requests >= needed:
            self._trial = Trial(self.limit, measurement, needed)
            self._set(limit, reason, now)

    def _goal(self, measurement: Measurement, now: float) -> tuple[float, str]:
        """Return the limit that a measurement asks for, and why; the limit of now if none."""
        limit, queueless = self.limit, measurement.queueless
        target, reason = limit, ""
        if self._searches:
            target, reason = _SEARCH * limit, "search"
        elif (lower := self._target(measurement)) < _TOO_HIGH * limit:
            target, reason = max(lower, limit / 2), "queue at the origin"
        elif now >= self._next_probe and measurement.slow <= _FEW_SLOW * measurement.requests:
            no_queue = _NO_QUEUE_IN_GROWTH if self._grows else _NO_QUEUE
            if queueless > no_queue:
                target, reason = self._higher(), "no queue at the origin"
            elif now >= self._since + self._probe_interval:
                target, reason = self._higher(), "probe"
        return self._clamp(target), reason

    @property
    def _grows(self) -> bool:
        """Whether no trial of a higher limit has failed since the last one that did not."""
        return self._probe_interval == _FIRST_PROBE_INTERVAL

    def _higher(self) -> float:
        """Return the higher limit that is tried next."""
        if 2.0 * self.limit <= self._threshold < inf:
            return 2.0 * self.limit
        return max(self.limit * _GROWTH, self.limit + 1.0)

    def _target(self, measurement: Measurement) -> float:
        waiting_for_timeout = measurement.in_flight - measurement.responding
        return _HEADROOM * measurement.busy + 1.0 + waiting_for_timeout

    def _judge(self, trial: Trial, after: Measurement, now: float) -> None:
        """Keep the limit of a trial, or return to the one before it."""
        self._trial = None
        before = trial.before
        change = log(after.in_flight / before.in_flight)
        followed = log(max(after.busy, 1e-9) / max(before.busy, 1e-9)) / change > 0.5 if abs(change) > 0.05 else None
        if followed is None:
            self._restart()
        elif self.limit > trial.limit:
            if followed and after.slow <= _MANY_SLOW * after.requests:
                self._probe_interval = _FIRST_PROBE_INTERVAL
                self._set(self.limit, "gain", now)
            else:
                self._threshold, self._next_probe = trial.limit, now + self._probe_interval
                self._probe_interval = min(_PROBE_INTERVAL, 2.0 * self._probe_interval)
                self._searches = not self._is_known(before) and before.queueless > 0.9
                target = trial.limit
                if not self._searches:  # the knee is where the throughput was reached that did not rise further
                    knee = target * after.busy / max(before.busy, 1e-9)
                    target = max(_REDUCTION * target, min(_ABOVE_KNEE * knee, self._target(after), self.limit))
                self._set(target, "no gain", now)
        elif followed:
            self._learn(after, known=True)
            self._searches = False
            self._probe_interval = _FIRST_PROBE_INTERVAL
            self._set(trial.limit, "loss", now)
        else:
            target = self.limit
            if self._searches:  # the former throughput needs this limit at the latency of now
                self._learn(after, known=False)
                target = max(target, min(trial.limit, _HEADROOM * before.rate * after.in_flight / after.rate + 1.0))
            self._set(target, "no loss", now)

    def _is_known(self, measurement: Measurement) -> bool:
        """Return whether most responses are of domains whose baselines met no queue."""
        counts = {name: count for name, (_, count) in measurement.latencies.items()}
        known = sum(count for name, count in counts.items() if self._domains[name].baseline.is_known)
        return known >= sum(counts.values()) / 2

    def _learn(self, measurement: Measurement, *, known: bool) -> None:
        """Take the latencies of a measurement as the baselines; it may be known that they met no queue."""
        for name, (seconds, count) in measurement.latencies.items():
            if count >= _MIN_LEARNED:
                self._domains[name].baseline.replace(seconds / count, count, known=known)

    def _set(self, limit: float, reason: str, now: float) -> None:
        """Change the limit, and measure anew as soon as requests have started and ended under it."""
        self._turnover = ceil(self.limit)
        self._put(limit)
        self.reason = reason
        latencies = self._measurement.latencies.values()
        count = sum(number for _, number in latencies)
        self._settled = now + (sum(total for total, _ in latencies) / count if count else self.baseline)
        self._since = now
        self._restart()

    def _put(self, limit: float) -> None:
        """Put a limit in force, and what each request is compared with."""
        self.limit = self._clamp(limit)
        self._half, self._full = self.limit / 2, FULL * self.limit
        self._healthy = self._settings.healthy_latency or inf

    def _restart(self) -> None:
        self._measurement = Measurement()
        self._proposed = ""

    def _clamp(self, limit: float) -> float:
        return float(min(max(floor(limit), self._settings.floor), self._settings.ceiling))


def _requests_needed(factor: float) -> int:
    """Return the number of requests that tell whether the throughput has changed by a factor."""
    return int(min(_MOST, max(_FEWEST, 40.0 / log(factor) ** 2)))
