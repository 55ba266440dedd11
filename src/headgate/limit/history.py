"""What a master remembers of one identifier in one domain, and the three algorithms that read it.

This file knows nothing of domains, messages or clocks; `now` is an argument. A history is one ``array('d')``: a
compact block that costs its identifier about 100 bytes and grows on demand. Its first item is the release time last
published (`PUBLISHED`); what follows belongs to the algorithm. All instants are seconds since 1970.

"If the number of requests in the past (burst / rate) is less than burst, then another request is acceptable
immediately. Otherwise let start be the greater of the current time and the last timestamp in the history; the next
request will be allowed at the time start + (1 / rate)." (smockron.txt, Rate-Limiting logic)
"""

import math
from array import array
from bisect import insort
from collections.abc import Sequence
from typing import Literal, Protocol

from headgate.limit.rule import Rule, at_most
from headgate.release import ASAP, advance

__all__ = ["ALGORITHMS", "PUBLISHED", "Algorithm", "AlgorithmName", "Gcra", "Log", "Smockron", "new_history"]

AlgorithmName = Literal["log", "gcra", "smockron"]

PUBLISHED = 0
"""Where a history keeps the release time last published for its identifier."""


def new_history() -> "array[float]":
    """Return the history of an identifier not seen before: nothing published, nothing recorded."""
    return array("d", (ASAP,))


_MICROSECOND = 0.001
"""In milliseconds, as `Smockron` counts."""


class Algorithm(Protocol):
    """How a history becomes a release time."""

    def __init__(self, rules: Sequence[Rule]) -> None: ...

    def record(self, history: "array[float]", moment: float, now: float) -> float:
        """Add a request that counts at `moment`; give the next release time, `ASAP` when the next may go at once."""
        ...

    def expiry(self, history: "array[float]") -> float:
        """Return the instant from which nothing in `history` can bear on a request."""
        ...


class Log:
    """The document's sentence, literally: the last `burst` timestamps, in order.

    One history serves all the rules of a domain: the `burst` greatest of the greatest `burst'` timestamps are the
    `burst` greatest of all.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple((rule.burst, rule.window, rule.interval) for rule in rules)
        self._full = max(rule.burst for rule in rules) + 1
        self._least = min(rule.burst for rule in rules)
        self._window = max(rule.window for rule in rules)

    def record(self, history: "array[float]", moment: float, now: float) -> float:
        """Add `moment`, dropping the smallest when full, and apply the sentence of each rule."""
        last = history[-1]
        if moment >= last:
            history.append(moment)
            last = moment
        else:
            insort(history, moment, lo=1)
        # "the policy can be enforced with a history of no more than `burst` timestamps"
        size = len(history)
        if size > self._full:
            del history[1]
        release = ASAP
        if size <= self._least:  # fewer than any burst, and most histories are: nothing to look at
            return release
        for burst, window, interval in self._rules:
            # A timestamp counts while it is > now - burst/rate (DESIGN.md §4, window edge).
            # The second sum rounds down: a timestamp that has just left would else count for a float's dust longer.
            if size > burst and history[-burst] > now - window and advance(history[-burst], window) > now:
                release = max(release, advance(now if now > last else last, interval))
        return release

    def expiry(self, history: "array[float]") -> float:
        """Nothing published is in force any more and the greatest timestamp has left the longest window."""
        return max(history[PUBLISHED], advance(history[-1], self._window))


class Gcra:
    """The generic cell rate algorithm: one theoretical arrival time a rule, whatever the burst.

    A little more permissive than `Log`: it forgives what the log remembers of a pause inside the window.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        # The tolerance is (burst - 1)/rate, negated and rounded down as all sums here.
        self._rules = tuple((rule.interval, at_most(rule.exact_interval * (1 - rule.burst))) for rule in rules)

    def record(self, history: "array[float]", moment: float, now: float) -> float:
        """Move each rule's theoretical arrival time one interval on from the greater of itself and `moment`."""
        if len(history) == 1:
            history.extend(ASAP for _ in self._rules)
        release = ASAP
        for at, (interval, tolerance) in enumerate(self._rules, start=1):
            arrival = advance(max(history[at], moment), interval)
            history[at] = arrival
            release = max(release, advance(arrival, tolerance))
        return release if release > now else ASAP

    def expiry(self, history: "array[float]") -> float:
        """Every theoretical arrival time has passed; what was published ends no later."""
        return max(history)


class Smockron:
    """The stored procedure of the original master, bit for bit; it lets burst + 1 requests through.

    It works in milliseconds, as the original does: sums of whole milliseconds are exact in a double, sums of tenths
    of seconds are not. Each rule keeps three numbers: where its next instant was counted from, how many intervals
    that is since, and when the original's database would have forgotten it. What the original rounds before it calls
    the procedure, the interval, stays exact; counted and not summed, it does not drift in a long chain either.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(self._in_milliseconds(rule) for rule in rules)

    @staticmethod
    def _in_milliseconds(rule: Rule) -> tuple[float, float, float, int]:
        """Give the interval from below and from above, the window and the burst."""
        interval = rule.exact_interval * 1_000
        return at_most(interval), -at_most(-interval), at_most(interval * rule.burst), rule.burst

    def record(self, history: "array[float]", moment: float, now: float) -> float:
        """Step each rule's next instant on, or start it one window back; the caller's max(timestamp, now) included."""
        if len(history) == 1:
            history.extend(ASAP for _ in range(3 * len(self._rules)))
        clock = round(now * 1_000, 3)
        arrived = max(round(moment * 1_000, 3), clock)
        # What a moment may have lost on its way here: it was rounded down as a sum, and then to its microseconds.
        slack = max(_MICROSECOND, 4 * math.ulp(clock))
        release = ASAP
        for index, (interval, above, window, burst) in enumerate(self._rules):
            at = 1 + 3 * index
            start, steps, expiry = history[at : at + 3]
            # The database drops a value after its expiry has passed, not at it, and its clock shows no microseconds.
            alive = expiry + slack >= clock
            kept = advance(start, steps * (interval if steps > 0 else above)) if alive else ASAP
            start, steps = (start, steps + 1) if kept >= arrived - window else (arrived, 1 - burst)
            following = advance(start, steps * (interval if steps > 0 else above))
            history[at], history[at + 1], history[at + 2] = start, steps, arrived + window
            if following > clock:
                release = max(release, following / 1_000)
        return release

    def expiry(self, history: "array[float]") -> float:
        """The original's database would have forgotten every rule's value, and nothing published is in force."""
        # After its expiry, not at it, and `record` reads an expiry with some slack: two microseconds more cover both.
        return max(history[PUBLISHED], (max(history[3::3]) + 2 * _MICROSECOND) / 1_000)


ALGORITHMS: dict[AlgorithmName, type[Algorithm]] = {"log": Log, "gcra": Gcra, "smockron": Smockron}
"""The algorithms by the names configuration gives them; the first is the default."""
