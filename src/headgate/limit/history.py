"""The history of one identifier in one domain, and the three algorithms that evaluate it.

This module knows neither domains nor messages; `now` is an argument. A history is one ``array('d')``: a compact block
of about 100 bytes that grows on demand. Its first item is the release time last published (`PUBLISHED`); the other
items belong to the algorithm. All instants are seconds since 1970.

"If the number of requests in the past (burst / rate) is less than burst, then another request is acceptable
immediately. Otherwise let start be the greater of the current time and the last timestamp in the history; the next
request will be allowed at the time start + (1 / rate)." (smockron.txt, Rate-Limiting logic)

If all requests are known in advance, and neither histories nor delayed requests are limited, identifiers do not affect
each other: `OfflineGate` evaluates each alone, in a third of the time of a `Gatekeeper` with a `Master`.
"""

import math
from array import array
from bisect import bisect_right, insort
from collections.abc import Container, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from headgate.limit.rule import Rule, round_down
from headgate.release import ASAP, advance

AlgorithmName = Literal["gcra", "log", "smockron"]

PUBLISHED = 0
"""Index in a history of the release time last published for its identifier."""


def new_history() -> "array[float]":
    """Return an empty history: nothing published, nothing recorded."""
    return array("d", (ASAP,))


MAX_LATENESS = 2.0
"""Seconds; an older message cannot add more to a history than its rule permits, and may find it dropped. Gatekeepers
that would have rejected its request had no control, because the master, or the network, had stopped."""

_WHOLE = 1 - 1e-6
"""A request is permitted from this number on: it is computed from instants since 1970."""

_MICROSECOND = 0.001
"""In milliseconds, as `Smockron` counts."""


def rounded_milliseconds(instant: float) -> float:
    """Return `instant` in milliseconds, rounded to whole microseconds, as `Smockron` counts."""
    return round(instant * 1_000, 3)


def spread(start: float, now: float, count: int, most: int) -> list[float]:
    """Return the timestamps of `count` requests that came evenly from `start` on, before `now`; the last `most`."""
    step = max(0.0, now - start) / count
    return [start + number * step for number in range(max(0, count - most), count)]


class Algorithm(Protocol):
    """Computes release times from a history."""

    def __init__(self, rules: Sequence[Rule]) -> None: ...

    @property
    def parameters(self) -> tuple[tuple[float, ...], ...]:
        """The numbers computed from each rule; with the name of the algorithm they define it completely."""
        ...

    @property
    def sizes(self) -> Container[int]:
        """The numbers of items that a history can have."""
        ...

    def record(self, history: "array[float]", timestamp: float, now: float) -> float:
        """Record a request at `timestamp`; return the next release time, `ASAP` if the next request is not held."""
        ...

    def record_many(self, history: "array[float]", count: int, start: float, now: float) -> float:
        """Record `count` requests that came evenly from `start` on, before `now`; return the next release time.

        They are recorded as far as the rule permits, and as early as they can have come.
        """
        ...

    def available(self, history: "array[float]", now: float) -> list[float]:
        """Return how many requests each rule permits at `now`, at most its burst; negative before a release."""
        ...

    def expiry(self, history: "array[float]") -> float:
        """Return the instant from which `history` no longer affects requests."""
        ...

    def filled(self, used: Sequence[float], now: float) -> "array[float]":
        """Return a history in which `used` requests count against each rule at `now`."""
        ...


class Log:
    """The document's sentence, literally: the last `burst` timestamps, in order.

    All rules of a domain share one history, with as many timestamps as the largest burst.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.parameters = tuple((rule.burst, rule.window, rule.interval) for rule in rules)
        self._full = max(rule.burst for rule in rules) + 1
        self.sizes = range(1, self._full + 1)
        self._least = min(rule.burst for rule in rules)
        self._window = max(rule.window for rule in rules)

    def record(self, history: "array[float]", timestamp: float, now: float) -> float:
        """Add `timestamp`, drop the smallest if the history is full, and evaluate each rule."""
        last = history[-1]
        if timestamp >= last:
            history.append(timestamp)
            last = timestamp
        else:
            insort(history, timestamp, lo=1)
            last = history[-1]  # `last` was the published release if there was no timestamp
        # "the policy can be enforced with a history of no more than `burst` timestamps"
        size = len(history)
        if size > self._full:
            del history[1]
        release = ASAP
        if size <= self._least:  # below every burst, as most histories are
            return release
        for burst, window, interval in self.parameters:
            # A timestamp counts while it is > now - burst/rate. The second sum rounds down, so that floating-point
            # error never extends a hold.
            if size > burst and history[-burst] > now - window and advance(history[-burst], window) > now:
                release = max(release, advance(now if now > last else last, interval))
        return release

    def record_many(self, history: "array[float]", count: int, start: float, now: float) -> float:
        """Add the timestamps that fit the history, and evaluate each rule at the last."""
        *earlier, last = spread(start, now, count, self._full)
        history[1:] = array("d", sorted([*history[1:], *earlier])[-self._full + 1 :])
        return self.record(history, last, last if last >= history[-1] else min(history[-1], now))

    def available(self, history: "array[float]", now: float) -> list[float]:
        """Return the burst of each rule without the timestamps in its window."""
        size = len(history)
        return [
            float(burst - (size - bisect_right(history, now - window, lo=1))) for burst, window, _ in self.parameters
        ]

    def expiry(self, history: "array[float]") -> float:
        """Return when the published hold has ended and the latest timestamp has left the longest window."""
        return max(history[PUBLISHED], advance(history[-1], self._window))

    def filled(self, used: Sequence[float], now: float) -> "array[float]":
        """Return as many timestamps at `now`, for the rule with the most requests: all rules share them."""
        return array("d", [ASAP, *[now] * min(self._full - 1, math.ceil(max(used)))])

    def shortened(self, history: "array[float]") -> "array[float]":
        """Return the latest timestamps of a history of this algorithm with other rules."""
        return new_history() + history[1:][1 - self._full :]


class Gcra:
    """The generic cell rate algorithm: one theoretical arrival time per rule, for any burst.

    It is slightly more permissive than `Log`: a pause within the window counts more.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        # The tolerance is (burst - 1)/rate, negated and rounded down as all sums here.
        self.parameters = tuple((rule.interval, round_down(rule.exact_interval * (1 - rule.burst))) for rule in rules)
        self.sizes = (1, 1 + len(rules))
        self._windows = tuple(rule.window for rule in rules)

    def record(self, history: "array[float]", timestamp: float, now: float) -> float:
        """Set the theoretical arrival time of each rule to one interval after the later of itself and `timestamp`."""
        if len(history) == 1:
            history.extend(ASAP for _ in self.parameters)
        release = ASAP
        for at, (interval, tolerance) in enumerate(self.parameters, start=1):
            begin = max(history[at], timestamp)
            arrival = begin + interval
            if arrival - begin > interval or arrival - interval > begin:  # `advance`, inline: each request comes here
                arrival = math.nextafter(arrival, ASAP)
            history[at] = arrival
            if arrival + tolerance > now:
                release = max(release, advance(arrival, tolerance))
        return release if release > now else ASAP

    def record_many(self, history: "array[float]", count: int, start: float, now: float) -> float:
        """Record the requests as work that arrives at `start`: those of others came between them.

        Reports of several gatekeepers overlap in time. One interval after the other from the last request on, each
        report would extend the debt of those before it, which the rule permits.
        """
        if len(history) == 1:
            history.extend(ASAP for _ in self.parameters)
        release = ASAP
        for at, ((interval, tolerance), window) in enumerate(zip(self.parameters, self._windows, strict=True), start=1):
            arrival = max(history[at], start) + count * interval
            history[at] = max(history[at], min(arrival, advance(now, window)))
            release = max(release, advance(history[at], tolerance))
        return release if release > now else ASAP

    def available(self, history: "array[float]", now: float) -> list[float]:
        """Return the intervals between the theoretical arrival time and the end of the window."""
        arrivals = history[1:] or [ASAP] * len(self.parameters)
        return [
            min(window, now + window - arrival) / interval
            for arrival, (interval, _), window in zip(arrivals, self.parameters, self._windows, strict=True)
        ]

    def expiry(self, history: "array[float]") -> float:
        """Return when every theoretical arrival time has passed, also for late messages; no published hold ends later.

        Without the history, requests that gatekeepers accepted together before a control reached them would each be
        taken for the first one.
        """
        return max(history) + MAX_LATENESS

    def filled(self, used: Sequence[float], now: float) -> "array[float]":
        """Return the theoretical arrival time after these requests."""
        times = (advance(now, count * interval) for count, (interval, _) in zip(used, self.parameters, strict=True))
        return array("d", [ASAP, *times])


class Smockron:
    """The stored procedure of the original master, bit for bit; it lets burst + 1 requests through.

    It uses milliseconds, as the original does: sums of whole milliseconds are exact in a double, sums of tenths of
    seconds are not. Each rule stores three numbers: a start, the number of intervals since the start, and the expiry
    in the original's database. The interval, which the original rounds, stays exact; multiplied instead of summed, it
    does not drift in a long chain.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.parameters = tuple(self._in_milliseconds(rule) for rule in rules)
        self.sizes = (1, 1 + 3 * len(rules))

    @staticmethod
    def _in_milliseconds(rule: Rule) -> tuple[float, float, float, int]:
        """Return the interval rounded down and rounded up, the window and the burst."""
        interval = rule.exact_interval * 1_000
        return round_down(interval), -round_down(-interval), round_down(interval * rule.burst), rule.burst

    def record(self, history: "array[float]", timestamp: float, now: float) -> float:
        """Advance the next instant of each rule, or start it one window before max(timestamp, now)."""
        if len(history) == 1:
            history.extend(ASAP for _ in range(3 * len(self.parameters)))
        clock = rounded_milliseconds(now)
        arrived = max(rounded_milliseconds(timestamp), clock)
        # The rounding error of a timestamp: it was rounded down as a sum, and then to microseconds.
        slack = max(_MICROSECOND, 4 * math.ulp(clock))
        release = ASAP
        for index, (interval, above, window, burst) in enumerate(self.parameters):
            at = 1 + 3 * index
            start, steps, expiry = history[at : at + 3]
            # The database drops a value after its expiry, not at it, and its clock has no microseconds.
            alive = expiry + slack >= clock
            kept = advance(start, steps * (interval if steps > 0 else above)) if alive else ASAP
            start, steps = (start, steps + 1) if kept >= arrived - window else (arrived, 1 - burst)
            following = advance(start, steps * (interval if steps > 0 else above))
            history[at], history[at + 1], history[at + 2] = start, steps, arrived + window
            if following > clock:
                release = max(release, following / 1_000)
        return release

    def record_many(self, history: "array[float]", count: int, start: float, now: float) -> float:
        """Record the last of the requests at `now`; no instant exceeds what the rule permits."""
        for timestamp in spread(start, now, count, 1 + max(burst for *_, burst in self.parameters)):
            self.record(history, timestamp, now)
        release = ASAP
        for index, (interval, _, window, _) in enumerate(self.parameters):
            at = 1 + 3 * index
            limit = advance(max(history[at + 2] - window, now * 1_000), interval)
            if self._following(history, index) > limit:
                history[at], history[at + 1] = limit, 0
            release = max(release, self._following(history, index) / 1_000)
        return release if release > now else ASAP

    def available(self, history: "array[float]", now: float) -> list[float]:
        """Return the intervals from the next instant to `now`, and the request at that instant."""
        if len(history) == 1:
            return [float(burst) for *_, burst in self.parameters]
        clock = now * 1_000
        return [
            min(float(burst), 1 + (clock - self._following(history, index)) / interval)
            if clock <= history[3 + 3 * index]
            else float(burst)
            for index, (interval, _, _, burst) in enumerate(self.parameters)
        ]

    def _following(self, history: "array[float]", index: int) -> float:
        """Return the next instant of a rule, in milliseconds."""
        interval, above, _, _ = self.parameters[index]
        start, steps = history[1 + 3 * index : 3 + 3 * index]
        return advance(start, steps * (interval if steps > 0 else above))

    def expiry(self, history: "array[float]") -> float:
        """Return when the original's database would have dropped every value, and the published hold has ended."""
        # After the expiry, not at it, and `record` compares with some slack: two microseconds more cover both.
        return max(history[PUBLISHED], (max(history[3::3], default=ASAP) + 2 * _MICROSECOND) / 1_000)

    def filled(self, used: Sequence[float], now: float) -> "array[float]":
        """Return a start at `now`, as many intervals before the next instant as are left of the burst."""
        history, clock = new_history(), rounded_milliseconds(now)
        for count, (_, _, window, burst) in zip(used, self.parameters, strict=True):
            history.extend((clock, 1 + count - burst, clock + window))
        return history


ALGORITHMS: dict[AlgorithmName, type[Algorithm]] = {"gcra": Gcra, "log": Log, "smockron": Smockron}
"""The algorithms by their names in the configuration; the first is the default."""


class Conversion:
    """Converts histories to other rules or another algorithm: what counts against a rule counts against its successor.

    That is the same rule or, of the rules that changed, the one in the same order. No hold is longer than the new rules
    permit, and none is shorter.
    """

    def __init__(self, old: Algorithm, old_rules: Sequence[Rule], new: Algorithm, rules: Sequence[Rule]) -> None:
        self._old, self._new, self._rules = old, new, rules
        gone = iter([rule for rule in old_rules if rule not in rules])
        before = [rule if rule in old_rules else next(gone, None) for rule in rules]
        self._before = [(0, 0) if rule is None else (old_rules.index(rule), rule.burst) for rule in before]

    def __call__(self, history: "array[float]", now: float) -> "array[float]":
        """Return a history under the new rules; also its hold at `now` is that of the new rules."""
        if isinstance(self._old, Log) and isinstance(self._new, Log):
            converted = self._new.shortened(history)
        else:
            available = self._old.available(history, now)
            used = []
            for rule, (at, burst) in zip(self._rules, self._before, strict=True):
                count = burst - available[at] if burst else 0.0
                # What exceeded the burst, as delayed requests do, exceeds the new one by no more.
                used.append(min(count, rule.burst + max(0.0, count - burst)))
            converted = self._new.filled(used, now)
        left = zip(self._new.available(converted, now), self._rules, strict=True)
        holds = [advance(now, (1 - number) * rule.interval) for number, rule in left if number < _WHOLE]
        converted[PUBLISHED] = max(holds, default=ASAP)
        return converted


class Verdicts(NamedTuple):
    """The number of delayed and rejected requests, and the longest delay in the unit of the times."""

    delayed: int = 0
    rejected: int = 0
    longest_delay: float = 0.0


class OfflineGate:
    """Applies `rules` to requests known in advance; a hold longer than `max_delay` is a rejection."""

    def __init__(self, rules: Sequence[Rule], algorithm: AlgorithmName, *, max_delay: float) -> None:
        self._record = ALGORITHMS[algorithm](rules).record
        self._max_delay = max_delay
        self.always_accepted = min(rule.burst for rule in rules)
        """An identifier with at most this many requests is never held, by any algorithm."""

    def judge_all(self, times: Iterable[float]) -> Verdicts:
        """Return the verdicts on the requests of one identifier that arrive at `times`, in ascending order."""
        record, max_delay = self._record, self._max_delay
        history = new_history()
        release, longest = ASAP, 0.0
        delayed = rejected = 0
        for now in times:
            if release <= now:
                following = record(history, now, now)
            else:
                wait = release - now
                if wait > max_delay:
                    rejected += 1
                    continue
                delayed += 1
                longest = max(longest, wait)
                following = record(history, release, now)
            release = following if following > release else release  # quicker than `max`
        return Verdicts(delayed, rejected, longest)
