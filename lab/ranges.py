"""Allowed ranges of what a run measures: the statistics of a series, and whether a value is within its range.

A series has a time and a value for each sample; the time is the begin of the interval that the sample describes. All
samples of a series describe intervals of one length. NaN is the value of an interval in which nothing was measured,
such as the latency without a request; every statistic leaves such samples out. A window has the samples whose time is
at least `from` and before `until`. A window without a sample has the statistic NaN, which is outside every range: an
expectation never holds because nothing was measured.

This module knows neither scenarios nor worlds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, Struct, field

from headgate.errors import fail_if

Statistic = Literal["value", "mean", "max", "min", "p99", "settling_time", "overshoot", "ripple", "peak", "drift"]
"""What is compared with the range: "value" is that of a metric, the others are those of a series."""

METRIC: Final = "value"
"""The only statistic of a metric."""


def window(
    times: Sequence[float], values: Sequence[float], start: float = -math.inf, end: float = math.inf
) -> tuple[list[float], list[float]]:
    """Return the times and values of the samples with `start` <= time < `end` that were measured (not NaN)."""
    chosen = [
        (time, value)
        for time, value in zip(times, values, strict=True)
        if start <= time < end and not math.isnan(value)
    ]
    return [time for time, _ in chosen], [value for _, value in chosen]


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; NaN without a value."""
    return math.fsum(values) / len(values) if values else math.nan


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that at least `share` of them do not exceed (nearest rank); NaN without one.

    `quantile(values, 0.99)` of 100 values is the second largest, of fewer than 100 the largest.
    """
    if not values:
        return math.nan
    # 0.07 * 100 is 7.000000000000001: the error of a product must not choose the next rank.
    rank = math.ceil(share * len(values) - 1e-9)
    return sorted(values)[max(rank, 1) - 1]


def settling_time(times: Sequence[float], values: Sequence[float], target: float, tolerance: float) -> float:
    """Return the seconds from the first sample to the first of those that end in the band, and stay in it.

    The band is `target` - `tolerance` to `target` + `tolerance`, both included. 0 if all samples are in the band;
    infinity if the last one is not; NaN without a sample.
    """
    if not values:
        return math.nan
    settled = math.inf
    for time, value in zip(reversed(times), reversed(values), strict=True):
        if abs(value - target) > tolerance:
            break
        settled = time - times[0]
    return settled


def overshoot(values: Sequence[float], target: float) -> float:
    """Return by how much the maximum exceeds `target`, as a share of `target`: 0.1 is 10 %, 0 if it does not.

    NaN without a value. `target` is positive.
    """
    return max(0.0, max(values) / target - 1.0) if values else math.nan


def ripple(values: Sequence[float]) -> float:
    """Return the standard deviation (of all values, not an estimate of a population's) as a share of the mean.

    A sine of amplitude a around m has a ripple of 0.707 a/m; counts of a Poisson process with the mean n have
    1/sqrt(n). 0 if all values are equal; infinity if they are not and their mean is 0; NaN without a value.
    """
    if not values:
        return math.nan
    middle = mean(values)
    deviation = math.sqrt(mean([(value - middle) ** 2 for value in values]))
    if deviation == 0.0:
        return 0.0
    return deviation / abs(middle) if middle else math.inf


def peak(values: Sequence[float]) -> float:
    """Return the maximum as a multiple of the mean; 1 if all values are equal; NaN without a value, or a mean of 0."""
    middle = mean(values)
    return max(values) / middle if values and middle else math.nan


def drift(values: Sequence[float]) -> float:
    """Return by how much the mean of the last quarter differs from that of the first, as a share of it: 0.1 is 10 %.

    NaN with fewer than four values, or if the first mean is 0.
    """
    quarter = len(values) // 4
    first = mean(values[:quarter])
    return abs(mean(values[-quarter:]) / first - 1.0) if quarter and first else math.nan


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a scenario file."""


Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""A finite number."""


class Expectation(Section, frozen=True, kw_only=True):
    """An allowed range, `[[expect]]`: what is measured, when, and between which values it lies."""

    signal: Annotated[str, Meta(min_length=1, max_length=100)]
    """The name of a series, or with the statistic "value" of a metric."""
    statistic: Statistic = METRIC
    """`value` is for metrics, all others for series."""
    start: Number = field(default=-math.inf, name="from")
    """Seconds; samples before it do not count."""
    until: Number = math.inf
    """Seconds; samples from it on do not count."""
    at_least: Number = -math.inf
    at_most: Number = math.inf
    target: Number | None = None
    """What the signal should settle at, or not exceed."""
    tolerance: Number | None = None
    """How far from the target a settled signal may be, in the unit of the signal."""

    def check(self) -> None:
        """Raise `ConfigurationError` for keys that do not go together."""
        self._fail_if(
            math.isinf(self.at_least) and math.isinf(self.at_most), "has no range; set at_least or at_most, or both"
        )
        self._fail_if(self.at_least > self.at_most, f"at_least {self.at_least:g} is above at_most {self.at_most:g}")
        self._fail_if(self.start >= self.until, f"from {self.start:g} must be before until {self.until:g}")
        self._check_target()

    def contains(self, value: float) -> bool:
        """Return whether the value is within the range, both bounds included; NaN is not."""
        return self.at_least <= value <= self.at_most

    def measure(
        self,
        metrics: Mapping[str, float | list[float]],
        times: Sequence[float],
        series: Mapping[str, Sequence[float]],
    ) -> float:
        """Return the value of one run: of its metric, or of the statistic of its series.

        Raises `ConfigurationError` for a signal that the run does not have.
        """
        known: Mapping[str, Any] = metrics if self.statistic == METRIC else series
        self._fail_if(
            self.signal not in known,
            f"is not measured in this scenario; it has {', '.join(sorted(known)) or 'nothing'}",
        )
        if self.statistic == METRIC:
            return float(known[self.signal])
        inside, values = window(times, series[self.signal], self.start, self.until)
        if self.statistic == "settling_time":
            return settling_time(inside, values, _given(self.target), _given(self.tolerance))
        if self.statistic == "overshoot":
            return overshoot(values, _given(self.target))
        return _OF_VALUES[self.statistic](values)

    def __str__(self) -> str:
        times = "" if math.isinf(self.start) else f" from {self.start:g} s"
        times += "" if math.isinf(self.until) else f" until {self.until:g} s"
        return f"{self.signal}{times}" if self.statistic == METRIC else f"{self.statistic} of {self.signal}{times}"

    @property
    def range(self) -> str:
        """The range in words."""
        low = "" if math.isinf(self.at_least) else f"at least {self.at_least:g}"
        high = "" if math.isinf(self.at_most) else f"at most {self.at_most:g}"
        return " and ".join(bound for bound in (low, high) if bound)

    def _check_target(self) -> None:
        needed = {"settling_time": ("target", "tolerance"), "overshoot": ("target",)}.get(self.statistic, ())
        for key in ("target", "tolerance"):
            state = f"needs a {key}" if key in needed else f"has no use for a {key}"
            is_set = getattr(self, key) is not None
            self._fail_if(is_set != (key in needed), f"the statistic {self.statistic} {state}")
        self._fail_if(
            self.statistic == "overshoot" and _given(self.target) <= 0,
            f"the target of an overshoot must be positive, got {self.target}",
        )
        self._fail_if(
            self.tolerance is not None and self.tolerance < 0, f"tolerance must not be negative, got {self.tolerance}"
        )

    def _fail_if(self, condition: object, sentence: str) -> None:
        fail_if(condition, f"expectation of {self.signal!r}: {sentence}")


class Finding(NamedTuple):
    """The values of an expectation in all seeds, and whether it holds."""

    expectation: Expectation
    values: tuple[float, ...]
    """One for each seed."""
    within: bool

    def __str__(self) -> str:
        outside = [value for value in self.values if not self.expectation.contains(value)]
        shown = outside or self.values
        low, high = min(shown), max(shown)
        value = f"{low:.4g}" if low == high or len(shown) == 1 else f"{low:.4g} to {high:.4g}"
        seeds = f" in {len(outside)} of {len(self.values)} seeds" if outside and len(self.values) > 1 else ""
        return f"{self.expectation} is {value}{seeds}; expected {self.expectation.range}"


def judge(expectation: Expectation, values: Sequence[float]) -> Finding:
    """Compare what each seed has measured with the range; without a seed, the expectation does not hold."""
    return Finding(expectation, tuple(values), bool(values) and all(map(expectation.contains, values)))


def _given(value: float | None) -> float:
    assert value is not None  # checked with the statistic
    return value


_OF_VALUES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": mean,
    "max": lambda values: max(values, default=math.nan),
    "min": lambda values: min(values, default=math.nan),
    "p99": lambda values: quantile(values, 0.99),
    "ripple": ripple,
    "peak": peak,
    "drift": drift,
}
