"""Slow, exact models of the three algorithms and of a gate, to which tests compare the core.

They follow the sentences of the document with lists and fractions, and import nothing from the core.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import NamedTuple, Protocol


class ExactRule(NamedTuple):
    """1/rate in exact seconds, and the burst."""

    interval: Fraction
    burst: int


class Model(Protocol):
    """One identifier under one rule."""

    def record(self, moment: Fraction, now: Fraction) -> Fraction | None:
        """Record a request at `moment`, reported at `now`; return the release to publish, or None."""


class LogModel:
    """The last `burst` timestamps of a rule."""

    def __init__(self, rule: ExactRule) -> None:
        self.rule = rule
        self.timestamps: list[Fraction] = []

    def record(self, moment: Fraction, now: Fraction) -> Fraction | None:
        interval, burst = self.rule
        self.timestamps = sorted([*self.timestamps, moment])[-burst:]
        if sum(1 for timestamp in self.timestamps if timestamp > now - burst * interval) < burst:
            return None
        return max(now, max(self.timestamps)) + interval


class GcraModel:
    """The theoretical arrival time, by the definition of the algorithm."""

    def __init__(self, rule: ExactRule) -> None:
        self.rule = rule
        self.arrival: Fraction | None = None

    def record(self, moment: Fraction, now: Fraction) -> Fraction | None:
        interval, burst = self.rule
        self.arrival = max(moment, self.arrival if self.arrival is not None else moment) + interval
        release = self.arrival - (burst - 1) * interval
        return release if release > now else None


class SmockronModel:
    """The original's stored procedure, in exact time: a value with an expiry."""

    def __init__(self, rule: ExactRule) -> None:
        self.rule = rule
        self.value: Fraction | None = None
        self.expiry: Fraction | None = None

    def record(self, moment: Fraction, now: Fraction) -> Fraction | None:
        interval, burst = self.rule
        arrived = max(moment, now)
        if self.expiry is not None and now > self.expiry:
            self.value = None
        if self.value is not None and self.value >= arrived - burst * interval:
            self.value += interval
        else:
            self.value = arrived - burst * interval + interval
        self.expiry = arrived + burst * interval
        return self.value if self.value > now else None


MODELS: dict[str, Callable[[ExactRule], Model]] = {"log": LogModel, "gcra": GcraModel, "smockron": SmockronModel}


class Verdict(NamedTuple):
    """The verdict on one request of `gate`."""

    status: str
    moment: Fraction
    release: Fraction | None


def gate(
    algorithm: str, rules: Iterable[ExactRule], arrivals: Iterable[Fraction], max_delay: Fraction
) -> list[Verdict]:
    """Return the verdicts on the requests of one identifier, in the order of their `arrivals`."""
    models = [MODELS[algorithm](rule) for rule in rules]
    hold: Fraction | None = None
    verdicts: list[Verdict] = []
    for now in arrivals:
        if hold is None or hold <= now:
            status, moment = "accepted", now
        elif hold - now <= max_delay:
            status, moment = "delayed", hold
        else:
            verdicts.append(Verdict("rejected", hold, None))
            continue
        releases = [release for model in models if (release := model.record(moment, now)) is not None]
        release = max(releases) if releases else None
        verdicts.append(Verdict(status, moment, release))
        if release is not None:
            hold = release if hold is None else max(hold, release)
    return verdicts
