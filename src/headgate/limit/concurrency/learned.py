"""Learns how many requests an origin can work on at once, from their latencies and their rate.

By Little's law, the completions per second times the latency without a queue (the baseline) are the requests that an
origin works on; what else is in flight waits in a queue there. While the limit is reached, these two numbers say
whether it is too high. Neither is certain: a longer latency is a queue, or work that takes longer, and a baseline is a
mean of few requests. So each change of the limit is a *trial*: the throughput before and after it is compared, and

- a lower limit stays only if the throughput does not fall with it. If it does, there was no queue: the limit returns,
  and the latencies that were measured are the new baseline;
- a higher limit stays only if the throughput rises with it.

While the limit is not reached, it stays as it is, and responses tell the baseline. At the start, with neither, the
limit is doubled as long as the throughput follows. Only an origin that is overloaded from the start gets a lower
limit in order to measure: step by step, until the throughput falls.
"""

from math import ceil, inf, log
from typing import Final, NamedTuple

from headgate.limit.concurrency.capacity import LearnedCapacity
from headgate.limit.concurrency.measurement import DomainWindow, Measurement, Window, close_window
from headgate.limit.concurrency.values import ConcurrencySettings, Outcome

FIRST_LIMIT: Final = 20
MAX_LAG: Final = 0.05
"""Seconds of delay of the event loop, beyond which the gate itself is overloaded."""

_WINDOW: Final = 0.1
"""Seconds after which what has ended is looked at."""
_HEADROOM: Final = 1.1
"""The target is this multiple of the requests that the origin works on, and one more, so that it never idles."""
_TOO_HIGH: Final = 0.8
"""A target below this share of the limit is worth a trial."""
_NO_QUEUE: Final = 0.95
"""Above this share of the latency without a queue, a higher limit is worth a trial."""
_NO_QUEUE_IN_GROWTH: Final = 0.9
_SATURATED: Final = 0.8
"""The share of requests that end at the limit, from which on throughput depends on the limit and not on demand."""
_OFTEN_FULL: Final = 0.2
_ABANDONED: Final = 0.5
"""Below this share a trial ends without a result."""
_RECENT: Final = 100
"""Requests over which the saturation is averaged."""
_LOOK: Final = 100
"""Requests after which a measurement is looked at."""
_RESTART: Final = 300
"""Requests after which a measurement that asks for no trial begins anew."""
_MIN_LEARNED: Final = 20
"""Responses of a domain from which its baseline is replaced after a trial."""
_FIRST_PROBE_INTERVAL: Final = 2.0
_PROBE_INTERVAL: Final = 15.0
"""Seconds at a limit, or after trials of a higher one that failed, until a higher one is tried."""
_FIRST_LOOK: Final = 60
"""Requests after which a limit at the start is doubled."""
_FIRST_GAIN: Final = 1.4
"""The factor by which the throughput has to rise with a doubled limit."""
_ABOVE_KNEE: Final = 1.05
_DRAIN: Final = 1.1
_FEW_SLOW: Final = 0.05
_MANY_SLOW: Final = 0.1
_REDUCTION: Final = 0.9

_GROWTH: Final = 1.25
_FAR_ABOVE: Final = 1.4
_SEARCH: Final = 0.6


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
        self.limit = float(min(max(FIRST_LIMIT, settings.floor), settings.ceiling))
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
        self._often_full = 0.0
        self._lagged = False
        self._measurement = Measurement()
        self._settled = 0.0  # what begins now ends then
        self._turnover = FIRST_LIMIT  # the number of requests that end before they show what the limit does
        self._since = 0.0  # the limit is what it is
        self._proposed = False
        self._trial: Trial | None = None
        self._threshold = inf  # below half of it the limit is doubled, as at the start
        self._next_probe = 0.0
        self._probe_interval = _FIRST_PROBE_INTERVAL
        self._searches = False
        self._starts = True  # neither a limit that is too high nor a baseline is known
        self._first_rate = 0.0

    def reconfigure(self, settings: ConcurrencySettings) -> None:
        """Put other settings in force; what was learned stays."""
        self._settings = settings
        self.limit = self._clamp(self.limit)

    def ended(self, domain: str, latency: float, outcome: Outcome, in_flight: int, *, now: float) -> None:
        """Take the end of a request; `in_flight` counts it, too."""
        if outcome is Outcome.UNKNOWN:
            return
        ended = self._domains.get(domain)
        if ended is None:
            ended = self._domains[domain] = DomainWindow()
            if self._due == inf:
                self._started, self._due = now, now + _WINDOW
        ended.latencies.append(latency if outcome is Outcome.ANSWERED else inf)
        ended.in_flight.append(in_flight)
        if now >= self._due:
            self._close(now)

    def lagged(self, seconds: float) -> None:
        """Take a delay of the event loop."""
        if seconds > MAX_LAG:
            self._lagged = True

    def _close(self, now: float) -> None:
        """End a window, and change the limit if there is a reason."""
        healthy = self._settings.healthy_latency or inf
        window = close_window(self._domains, now - self._started, self.limit, healthy)
        self._started, self._due = now, now + _WINDOW
        if window.answered:
            self.baseline = window.work / window.answered
        self._saturation += (window.full - self._saturation) * window.requests / (window.requests + _RECENT)
        self._starts = self._starts and not any(domain.baseline.is_known for domain in self._domains.values())
        if self._saturation >= _SATURATED:
            self.capacity.add(window.answered, window.seconds)
        if self._settings.freeze:
            return
        if not self._reduce(window, now):
            if self._saturation < _SATURATED:
                self._follow_demand(window, now)
            elif self._settings.mode == "monitor":
                self._estimate(window, now)
            elif now < self._settled or self._turnover > 0:
                self._turnover -= window.requests
            elif self._starts:
                self._double(window, now)
            elif window.in_flight <= self.limit * _DRAIN + 1:
                self._measure(window, now)

    def _reduce(self, window: Window, now: float) -> bool:
        """Lower the limit without a trial if most requests time out, or the gate itself is overloaded."""
        lagged, self._lagged = self._lagged, False
        factor, reason = 1.0, ""
        if window.timeouts > window.requests / 2:
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

    def _double(self, window: Window, now: float) -> None:
        """Double the limit at the start, as long as that raises the throughput: a baseline is not known."""
        measurement = self._measurement
        measurement.add(window)
        if measurement.requests < _FIRST_LOOK:
            return
        gains = measurement.rate > _FIRST_GAIN * self._first_rate
        slow = measurement.slow > _MANY_SLOW * measurement.requests
        if gains and not slow and self.limit < self._settings.ceiling:
            self._first_rate = measurement.rate
            self._set(2.0 * self.limit, "start", now)
            return
        self._starts, self._searches = False, not gains
        self._next_probe = now + self._probe_interval
        if not gains:
            self._threshold = self.limit / 2.0
            self._set(self._threshold, "no gain", now)

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
        if not self._proposed:
            self._restart()
            self._proposed = True
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
                target, reason = self._higher(measurement), "no queue at the origin"
            elif now >= self._since + self._probe_interval:
                target, reason = self._higher(measurement), "probe"
        return self._clamp(target), reason

    @property
    def _grows(self) -> bool:
        """Whether no trial of a higher limit has failed since the last one that did not."""
        return self._probe_interval == _FIRST_PROBE_INTERVAL

    def _higher(self, measurement: Measurement) -> float:
        """Return the limit that is tried next, which is the present one if it is far above what the origin works on."""
        if 2.0 * self.limit <= self._threshold < inf:
            return 2.0 * self.limit
        bound = _FAR_ABOVE * measurement.busy + 1.0
        return max(self.limit, min(max(self.limit * _GROWTH, self.limit + 1.0), bound))

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
            if self._searches:
                self._learn(after, known=False)
            self._set(self.limit, "no loss", now)

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
        self.limit = self._clamp(limit)
        self.reason = reason
        latencies = self._measurement.latencies.values()
        count = sum(number for _, number in latencies)
        self._settled = now + (sum(total for total, _ in latencies) / count if count else self.baseline)
        self._since = now
        self._restart()

    def _restart(self) -> None:
        self._measurement = Measurement()
        self._proposed = False

    def _clamp(self, limit: float) -> float:
        return float(min(max(limit, self._settings.floor), self._settings.ceiling))


def _requests_needed(factor: float) -> int:
    """Return the number of requests that tell whether the throughput has changed by a factor."""
    return int(min(600.0, 40.0 / log(factor) ** 2))
