"""What a gate publishes as traffic advice, by class of agents: as part of its state, and as metrics."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client.core import Metric

from headgate.observe.metrics import gauge

_METRICS: Final = {
    "published": ("headgate_advice_fraction", "Published fraction of a class of agents; 0 if it is disallowed."),
    "fraction": ("headgate_advice_computed_fraction", "Computed fraction of a class; not published in mode monitor."),
    "demand": ("headgate_advice_demand", "Requests per second of a class that would arrive without advice."),
    "arrivals": ("headgate_advice_arrivals", "Requests per second of a class that arrive."),
    "in_force": ("headgate_advice_fraction_in_force", "Fraction that the agents of a class obey on average."),
}
"""Name and description of the metric of each value."""


class AdviceState(msgspec.Struct, frozen=True):
    """What is published as traffic advice for one class of agents, and why. Rates are in requests per second."""

    user_agent: str
    """The name of its entry."""
    fraction: float
    """The fraction that is computed; 0 if the class is disallowed. Without a computation, that of the entry."""
    published: float = 1.0
    """The fraction that is published: another one in mode monitor."""
    demand: float | None = None
    """What would arrive without advice, as estimated; null without a computation."""
    arrivals: float | None = None
    """What arrived in the window of the estimate, before anything was rejected."""
    in_force: float | None = None
    """The fraction that agents obey on average: the mean of what was published in the last max-age."""
    reason: str = "static"
    """Why the fraction is what it is."""


def advice_metrics(classes: Sequence[AdviceState]) -> Iterator[Metric]:
    """Make the metrics of all classes. Their names come from the configuration, so they may be labels."""
    for name, (metric, text) in _METRICS.items():
        values = {each.user_agent: value for each in classes if (value := getattr(each, name)) is not None}
        if values:
            yield gauge(metric, text, values, "user_agent")
