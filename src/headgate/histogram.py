"""Histograms of seconds, as they become metrics: counts by upper bound, each with those below, and the sum as "sum"."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, TypeAlias

SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of all histograms."""

_LABELS: Final = (*map(str, SECONDS), "+Inf")

Histogram: TypeAlias = dict[str, float]
"""One histogram."""


def histogram_of(counts: Iterable[int], total: float) -> Histogram:
    """Return the histogram with so many values up to each bound and above the one before; the last is above all."""
    return {**dict(zip(_LABELS, accumulate(counts), strict=True)), "sum": total}


def new_histogram() -> Histogram:
    """Return a histogram without values."""
    return histogram_of([0] * len(_LABELS), 0.0)


def observe(histogram: Histogram, seconds: float) -> None:
    """Add a value."""
    for label in _LABELS[bisect_left(SECONDS, seconds) :]:
        histogram[label] += 1
    histogram["sum"] += seconds
