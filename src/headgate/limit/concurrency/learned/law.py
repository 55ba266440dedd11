"""Decides at the end of each window which limit is in force. The package describes the law.

Each window either lowers the limit at once (timeouts, an event loop that is late), or is one of a limit that grows, or
of one that is not reached, or is added to the measurement of the limit in force. When a measurement has enough
requests, the step of the phase decides: it begins a trial, or judges the one under way.
"""

from collections.abc import Callable
from math import ceil, floor, inf
from typing import Final

from headgate.limit.concurrency.learned.domain_windows import DomainWindows
from headgate.limit.concurrency.learned.growth import Growth
from headgate.limit.concurrency.learned.measurement import LimitPeriod, Measurement, RecentTimeouts, Window
from headgate.limit.concurrency.learned.phases import TRANSITIONS, Event, Phase
from headgate.limit.concurrency.learned.probes import ProbeSchedule
from headgate.limit.concurrency.learned.targets import (
    REDUCTION,
    limit_after_search,
    many_are_slow,
    target,
)
from headgate.limit.concurrency.learned.trial import Trial, requests_needed
from headgate.limit.concurrency.values import ConcurrencySettings, LimitReason

FIRST_LIMIT: Final = 20
"""Requests in flight before anything is known.

Chosen. With 10, a start at 0.7 of the capacity of 64 places refuses (0.12 of the capacity, with 20 none); with 40, the
limit of 4 places is 4.1 times the knee (2.3), and 200 places refuse 0.16 of the capacity in 8 s (0.02).
"""
SATURATED: Final = 0.8
"""The share of requests that end at the limit, from which on throughput depends on the limit and not on demand.

0.6: 0.42 instead of 0.25 of the requests wait when an overload has become a load of 0.9; 0.9: no effect within chance.
"""

_TOO_HIGH: Final = 0.9
"""A target below this share of the limit is worth a trial.

Chosen; 0.8 and 0.95 tried: no effect within chance on a step and a capacity that is doubled or quartered.
"""
_NO_QUEUE: Final = 0.95
"""Above this share of the latency without a queue, a higher limit is worth a trial.

Chosen; 0.9: goodput 0.89 instead of 0.94, within chance, 40 s after the capacity has doubled; 0.98: no effect but a
limit of 1.17 instead of 1.34 times the knee after the capacity has fallen to a quarter.
"""
_NO_QUEUE_IN_GROWTH: Final = 0.9
"""That share while higher limits have led to higher throughputs.

Chosen; 0.8 and 0.95 tried: no effect within chance on steps, starts in overload and a capacity that doubles.
"""
_OFTEN_FULL: Final = 0.2
"""From this share on a limit is too low if no requests wait at the origin: they wait in front of it for a moment.

Without this rule half of the requests wait for a place after an hour of overload has become a load of 0.9 (a quarter
with it), at a limit of 1.04 instead of 1.4 times the knee.
"""
_RESTART: Final = 300
"""Requests after which a measurement that asks for no trial begins anew.

Chosen; 150, 600 and never tried: no effect within chance.
"""
_ABANDONED: Final = 0.5
"""Below this share a trial ends without a result.

Chosen; 0.3 and 0.7 tried: no effect within chance at loads of 0.9 and 1.2.
"""
_LOOK: Final = 100
"""Requests after which a measurement is looked at.

Chosen; 50 and 200 tried: no effect within chance on a step and a capacity that changes.
"""
_SEARCH: Final = 0.5
"""The factor of a lower limit when no baseline is known: any that makes the queue end tells the knee.

With 0.4, a start in overload gets 0.65 of the capacity in its first seconds at the worst of four, with 0.5 0.79. With
0.6, the limit is up to 1.5 times the knee in an hour of overload.
"""


class LimitLaw:
    """The limit in force, the phase that it is in, and what changes them."""

    def __init__(self, settings: ConcurrencySettings, domains: DomainWindows) -> None:
        self.limit = 0.0
        """The limit now."""
        self.reason = LimitReason.START
        """Why it was changed last."""
        self.changes = dict.fromkeys(LimitReason, 0)
        """How often it was changed so far, or kept after a trial."""
        self.baseline = 0.0
        """Seconds that a response takes without a queue at the origin, the mean of the last window; 0 if not known."""
        self.phase = Phase.GROWING
        self._settings = settings
        self._domains = domains
        self._period = LimitPeriod(0.0, 0.0, FIRST_LIMIT)
        self._growth = Growth()
        self._trial: Trial | None = None  # in the phases of trials
        self._probes = ProbeSchedule()
        self._timeouts = RecentTimeouts()
        self._often_full = 0.0
        self._put(FIRST_LIMIT)
        self._steps: Final[dict[Phase, Callable[[Measurement, float], None]]] = {
            Phase.SEARCHING: self._search,
            Phase.SEARCH_TRIAL: self._judge_lower,
            Phase.STEADY: self._compare,
            Phase.LOWER_TRIAL: self._judge_lower,
            Phase.HIGHER_TRIAL: self._judge_higher,
        }

    @property
    def slow_latency(self) -> float:
        """Seconds above which a response counts as slow; infinite if none does."""
        usual = self._growth.slow_latency if self.phase is Phase.GROWING else inf
        return self._settings.healthy_latency or usual

    def reconfigure(self, settings: ConcurrencySettings) -> None:
        """Put other settings in force; what was learned stays, but for a trial whose limit they change."""
        mode, limit, self._settings = self._settings.mode, self.limit, settings
        self._put(limit)
        if self._trial is not None and (self.limit != limit or settings.mode != mode):
            self._end_trial(Event.NO_RESULT)
            self._period.restart()

    def observe(self, window: Window) -> None:
        """Take the baseline, which a limit that is frozen has, too."""
        if window.answered:
            self.baseline = window.work / window.answered
        if self.phase is Phase.GROWING and self._domains.has_estimate:
            self._move(Event.GROWN)

    def close_window(self, window: Window, saturation: float, *, lagged: bool, now: float) -> None:
        """Change the limit if there is a reason.

        `saturation` is the share of recent requests that ended while the limit was reached. `lagged` tells that the
        event loop was late.
        """
        if self._reduce(window, now, lagged=lagged):
            return
        monitors, period = self._settings.mode == "monitor", self._period
        if self.phase is Phase.GROWING and not monitors:
            self._grow(window, now)
        elif saturation < SATURATED:
            self._follow_demand(window, saturation, now)
        elif monitors:
            self._estimate(window, now)
        elif now < period.settled or period.turnover > 0:
            period.turnover -= window.requests
        else:
            period.measurement.add(window)
            if period.measurement.requests >= (_LOOK if self._trial is None else self._trial.requests):
                self._steps[self.phase](period.measurement, now)

    # Without a trial.

    def _reduce(self, window: Window, now: float, *, lagged: bool) -> bool:
        """Lower the limit if most requests time out, or the gate itself is overloaded; return whether that is so."""
        factor, reason = 1.0, None
        self._timeouts.add(window)
        if self._timeouts.share > 0.5:
            if window.full > 0.5:  # one half for each set of requests in flight
                factor, reason = 1.0 - 0.5 * min(1.0, window.requests / self.limit), LimitReason.TIMEOUTS
        elif lagged and window.in_flight >= self.limit / 2 and now >= self._period.settled:
            factor, reason = REDUCTION, LimitReason.EVENT_LOOP
        else:
            return False
        self._end_trial(Event.NO_RESULT)
        if reason and self.limit > self._settings.floor:
            if self.reason != reason:
                self._probes.return_to(self.limit)
            self._set(self.limit * factor, reason, now)
            self._period.settled = max(self._period.settled, now + 1.0) if lagged else now
        return True

    def _follow_demand(self, window: Window, saturation: float, now: float) -> None:
        """Keep the limit while it is not reached all the time; raise it while it is often reached without a queue."""
        if saturation < _ABANDONED and self._period.measurement.requests:
            if self._trial is not None:
                self._set(min(self._trial.limit, self.limit), LimitReason.NOT_REACHED, now)
                self._end_trial(Event.NO_RESULT)
            self._period.restart()
        if self._trial is None and window.full > _OFTEN_FULL and window.work > 0.9 * window.in_flight * window.seconds:
            self._often_full += window.requests * window.full
            if self._often_full >= _LOOK:
                self._often_full = 0.0
                self._set(self.limit + 1.0, LimitReason.OFTEN_REACHED, now)

    def _estimate(self, window: Window, now: float) -> None:
        """Set the limit to the target: nothing obeys it, so a trial would prove nothing."""
        measurement = self._period.measurement
        measurement.add(window)
        if measurement.requests >= _LOOK:
            self._set(target(measurement), LimitReason.ESTIMATE, now)

    def _grow(self, window: Window, now: float) -> None:
        """Permit one request more for each that ends, so that the limit is at most doubled within a round."""
        period = self._period
        is_reached = window.full >= SATURATED
        if is_reached:
            self._put(min(self.limit + window.answered, 2.0 * period.turnover))
        elif not self._growth.has_begun:
            period.restart()
            return
        period.measurement.add(window)
        if not self._growth.is_round(period.measurement, period.turnover, self.baseline):
            return
        follows = self._growth.follows(period.measurement)
        is_slow = self._are_slow(period.measurement)
        if is_slow or not follows:
            self._move(Event.NO_BASELINE)
            self._probes.pause(self.limit / 2.0, now)
            self._set(self.limit / 2.0, LimitReason.SLOW if is_slow else LimitReason.NO_GAIN, now)
            return
        if self.limit >= self._settings.ceiling:
            self._move(Event.GROWN)
        self._set(self.limit, LimitReason.START, now)

    # A step for each phase in which the limit is measured.

    def _search(self, measurement: Measurement, now: float) -> None:
        """Try half of the limit."""
        lower = self._clamp(_SEARCH * self.limit)
        if self._lower_if_slow(measurement, now):
            return
        if lower == self.limit:
            self._move(Event.PROVED)
            self._keep(measurement)
        elif measurement.requests >= requests_needed(lower / self.limit):
            self._try(lower, LimitReason.SEARCH, now)

    def _compare(self, measurement: Measurement, now: float) -> None:
        """Begin a trial if two measurements in succession ask for it: the first may be older than a change."""
        period = self._period
        if self._lower_if_slow(measurement, now) or measurement.requests < period.needed:
            return
        limit, reason = self._goal(measurement, now)
        if limit == self.limit:
            self._keep(measurement)
            return
        needed = requests_needed(limit / self.limit)
        if period.proposed != reason:
            period.restart()
            period.proposed, period.needed = reason, needed
        elif measurement.requests < needed:
            period.needed = needed
        else:
            self._try(limit, reason, now)

    def _judge_lower(self, after: Measurement, now: float) -> None:
        """Return to the limit before the trial if the throughput has fallen."""
        trial = self._trial
        assert trial is not None
        followed, searched = trial.followed(after), self.phase is Phase.SEARCH_TRIAL
        if followed is None:
            self._end_trial(Event.NO_RESULT)
            self._period.restart()
        elif followed:
            self._domains.learn(after, known=True)
            self._end_trial(Event.PROVED)
            self._probes.succeeded()
            self._set(trial.limit, LimitReason.LOSS, now)
        else:
            self._end_trial(Event.NO_LOSS)
            limit = self.limit
            if searched:
                self._domains.learn(after, known=False)
                limit = limit_after_search(trial, after, limit)
            self._set(limit, LimitReason.NO_LOSS, now)

    def _judge_higher(self, after: Measurement, now: float) -> None:
        """Keep the limit of the trial if the throughput has risen."""
        trial = self._trial
        assert trial is not None
        followed, before = trial.followed(after), trial.before
        if followed is None:
            self._end_trial(Event.NO_RESULT)
            self._period.restart()
        elif followed and not self._are_slow(after):
            self._end_trial(Event.PROVED)
            self._probes.succeeded()
            self._set(self.limit, LimitReason.GAIN, now)
        else:
            self._probes.failed(trial.limit, now)
            is_known = self._domains.are_known(before) or before.queueless <= 0.9
            self._end_trial(Event.PROVED if is_known else Event.NO_BASELINE)
            self._set(trial.limit, LimitReason.NO_GAIN, now)

    # What the steps share.

    def _goal(self, measurement: Measurement, now: float) -> tuple[float, LimitReason]:
        """Return the limit that a measurement asks for, and why; the limit of now if none."""
        limit, reason = self.limit, self.reason
        if (lower := target(measurement)) < _TOO_HIGH * limit:
            limit, reason = max(lower, limit / 2), LimitReason.QUEUE
        elif self._probes.is_due(now):
            if measurement.queueless > (_NO_QUEUE_IN_GROWTH if self._probes.succeeds else _NO_QUEUE):
                limit, reason = self._probes.higher(limit), LimitReason.NO_QUEUE
            elif now >= self._period.began + self._probes.interval:
                limit, reason = self._probes.higher(limit), LimitReason.PROBE
        return self._clamp(limit), reason

    def _are_slow(self, measurement: Measurement) -> bool:
        """Return whether too many responses are slow; without a healthy latency, that counts for growth alone."""
        return bool(self._settings.healthy_latency) and many_are_slow(measurement)

    def _lower_if_slow(self, measurement: Measurement, now: float) -> bool:
        if not self._are_slow(measurement):
            return False
        self._set(self.limit * REDUCTION, LimitReason.SLOW, now)
        return True

    def _keep(self, measurement: Measurement) -> None:
        """Keep the limit, and forget what was measured long ago."""
        if measurement.requests >= _RESTART:
            self._period.restart()

    def _try(self, limit: float, reason: LimitReason, now: float) -> None:
        """Begin a trial."""
        self._trial = Trial(self.limit, self._period.measurement, requests_needed(limit / self.limit))
        self._move(Event.HIGHER if limit > self.limit else Event.LOWER)
        self._set(limit, reason, now)

    def _end_trial(self, event: Event) -> None:
        self._trial = None
        self._move(event)

    def _move(self, event: Event) -> None:
        self.phase = TRANSITIONS[self.phase][event]

    def _set(self, limit: float, reason: LimitReason, now: float) -> None:
        """Change the limit, and measure anew as soon as requests have started and ended under it."""
        latencies = self._period.measurement.latencies.values()
        count = sum(number for _, number in latencies)
        latency = sum(total for total, _ in latencies) / count if count else self.baseline
        self._period = LimitPeriod(now, now + latency, ceil(self.limit))
        self._put(limit)
        self.reason = reason
        self.changes[reason] += 1

    def _put(self, limit: float) -> None:
        self.limit = self._clamp(limit)

    def _clamp(self, limit: float) -> float:
        return float(min(max(floor(limit), self._settings.floor), self._settings.ceiling))
