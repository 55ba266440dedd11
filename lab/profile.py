"""Loads over time: straight lines between points, repeated if there is a period.

Two points with one time are a step, two with different times a ramp; a step up and a step down are a pulse, and a ramp
with a period is a sawtooth. The first value holds before the first point, the last one after the last.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from headgate.errors import fail_if

_LEAST_AREA = 1e-9
"""A load that sends less than this in each period sends nothing."""


class Segment(NamedTuple):
    """A straight line of the profile, from its start until its end."""

    start: float
    end: float
    first: float
    """The value at the start."""
    last: float
    """The value just before the end."""

    @property
    def area(self) -> float:
        """The integral of the whole segment."""
        return (self.first + self.last) / 2 * (self.end - self.start) if self.end < math.inf else math.inf

    def value(self, time: float) -> float:
        """Return the value at an instant of the segment."""
        if self.first == self.last:
            return self.first
        return self.first + (self.last - self.first) * (time - self.start) / (self.end - self.start)


class Profile:
    """A value over time that is at least 0 at any instant, and its integral."""

    def __init__(self, points: Sequence[tuple[float, float]], period: float = math.inf) -> None:
        """Take (seconds, value) in ascending order of time, all within one period; raises `ConfigurationError`."""
        fail_if(not points, "a load over time needs at least one point [seconds, value]")
        for (before, _), (after, _) in pairwise(points):
            fail_if(after < before, f"the points must be in ascending order of time, got {before:g} before {after:g}")
        for time, value in points:
            fail_if(
                not 0 <= time <= period or time == math.inf or not 0 <= value < math.inf,
                f"invalid point [{time:g}, {value:g}]; expected seconds from 0 to the period, and a value from 0",
            )
        (first, first_value), (last, last_value) = points[0], points[-1]
        line = [(0.0, first_value), *points] if first > 0 else list(points)
        if last < period:
            line.append((period, last_value))
        self._segments = [
            Segment(start, end, value, end_value) for (start, value), (end, end_value) in pairwise(line) if start < end
        ]
        self._starts = [segment.start for segment in self._segments]
        self._period = period
        self._area = sum(segment.area for segment in self._segments)

    def value(self, time: float) -> float:
        """Return the value at `time`; at a step, that after it."""
        local = math.fmod(time, self._period) if self._period < math.inf else time
        return self._segments[bisect_right(self._starts, local) - 1].value(local)

    def after(self, time: float, area: float) -> float:
        """Return the instant at which the integral from `time` reaches `area` > 0; infinity if it never does.

        With exponentially distributed areas of the mean 1, these instants are a Poisson process whose rate is the
        value of the profile; with areas of 1, arrivals at even distances.
        """
        base = 0.0
        if self._period < math.inf:
            if self._area < _LEAST_AREA:
                return math.inf
            base = math.floor(time / self._period) * self._period
        position = max(0.0, time - base)  # a quotient is rounded, so the base can be a little too large
        index = bisect_right(self._starts, position) - 1
        while True:
            segment = self._segments[index]
            first = segment.value(position)
            rest = Segment(position, segment.end, first, segment.last)
            if area <= rest.area and first + segment.last > 0:
                return max(time, base + position + _crossing(rest, area))
            area -= rest.area
            index += 1
            if index == len(self._segments):
                if self._period == math.inf:
                    return math.inf
                # Whole periods are skipped at once: of a very low load, an area can take billions of them.
                periods = area // self._area
                base, index = base + (1 + periods) * self._period, 0
                area -= periods * self._area
            position = self._segments[index].start


def _crossing(segment: Segment, area: float) -> float:
    """Return the seconds from the start of the segment to where its integral reaches `area`."""
    if segment.first == segment.last:
        return area / segment.first
    slope = (segment.last - segment.first) / (segment.end - segment.start)
    # The positive root of first·t + slope·t²/2 = area, in the form that does not lose digits for a small slope.
    root = math.sqrt(max(0.0, segment.first * segment.first + 2 * slope * area))
    width = segment.end - segment.start
    return min(2 * area / (segment.first + root), width) if root else width
