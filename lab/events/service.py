"""Service times: how long a station works on one request when it is not overloaded."""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Annotated, Literal

from msgspec import Meta

from lab.chance import Draw, exponential
from lab.ranges import Section
from lab.scenario import Factor, Seconds, Share

_NORMAL = NormalDist()
_LEAST = 2.0**-54
"""Replaces a draw of 0, whose quantile in a normal distribution is infinite."""


class Service(Section, frozen=True, kw_only=True):
    """The distribution of service times; all have the mean `mean`."""

    kind: Literal["constant", "exponential", "lognormal", "bimodal"] = "constant"
    mean: Seconds = 0.1
    """Seconds."""
    sigma: Annotated[float, Meta(ge=0.0, le=4.0)] = 1.0
    """Of a lognormal distribution: the standard deviation of the logarithm."""
    slow_share: Share = 0.1
    """Of a bimodal distribution: the share of slow requests."""
    slow_factor: Factor = 10.0
    """Of a bimodal distribution: the time of a slow request as a multiple of a fast one's."""

    def sampler(self, draw: Draw) -> Callable[[], float]:
        """Return a function that returns the next service time."""
        return _SAMPLERS[self.kind](self, draw)


def _constant(service: Service, draw: Draw) -> Callable[[], float]:  # noqa: ARG001 - the common form
    return lambda: service.mean


def _exponential(service: Service, draw: Draw) -> Callable[[], float]:
    return lambda: exponential(service.mean, draw)


def _lognormal(service: Service, draw: Draw) -> Callable[[], float]:
    sigma = service.sigma
    middle = math.log(service.mean) - sigma * sigma / 2  # the mean is exp(middle + sigma**2 / 2)
    return lambda: math.exp(middle + sigma * _NORMAL.inv_cdf(max(draw(), _LEAST)))


def _bimodal(service: Service, draw: Draw) -> Callable[[], float]:
    share, factor = service.slow_share, service.slow_factor
    fast = service.mean / (1 - share + share * factor)
    slow = fast * factor
    return lambda: slow if draw() < share else fast


_SAMPLERS = {
    "constant": _constant,
    "exponential": _exponential,
    "lognormal": _lognormal,
    "bimodal": _bimodal,
}
