"""What a gate publishes as traffic advice, by class of agents: as part of its state, and as metrics."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client.core import Metric

from headgate.observe.metrics import gauge

_METRICS: Final = (
    (
        "headgate_advice_fraction",
        "Fraction of a class of agents, 0 if it is disallowed: published, computed, and in force on average.",
        {"published": "published", "computed": "fraction", "in_force": "in_force"},
    ),
    (
        "headgate_advice_requests_per_second",
        "Requests per second of a class: those that would arrive without advice, and those that arrive.",
        {"demand": "demand", "arrivals": "arrivals"},
    ),
)
"""Names, descriptions, and the fields by the values of the label `kind`."""


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
    for name, text, kinds in _METRICS:
        values = {
            one.user_agent: {kind: value for kind, field in kinds.items() if (value := getattr(one, field)) is not None}
            for one in classes
        }
        if any(values.values()):
            yield gauge(name, text, values, "user_agent", "kind")
