"""Slow, exact models of the three algorithms and of a gate, in fractions; what the core is proven against.

Written from the sentences alone, with lists and fractions and no thought for speed. Nothing here imports the core.
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
        """Count a request of `moment` that is reported at `now`; give the release, None where none is published."""


class LogModel:
    """The last `burst` timestamps of each rule, searched from scratch every time."""

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
    """The theoretical arrival time, as the algorithm's definition has it."""

    def __init__(self, rule: ExactRule) -> None:
        self.rule = rule
        self.arrival: Fraction | None = None

    def record(self, moment: Fraction, now: Fraction) -> Fraction | None:
        interval, burst = self.rule
        self.arrival = max(moment, self.arrival if self.arrival is not None else moment) + interval
        release = self.arrival - (burst - 1) * interval
        return release if release > now else None


class SmockronModel:
    """The original's procedure on its database: a value with an expiry, in exact time."""

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
    """One judged request of `gate`."""

    status: str
    moment: Fraction
    release: Fraction | None


def gate(
    algorithm: str, rules: Iterable[ExactRule], arrivals: Iterable[Fraction], max_delay: Fraction
) -> list[Verdict]:
    """Judge one identifier's `arrivals` in order: each meets the hold left by those before it."""
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
