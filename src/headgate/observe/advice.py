"""What a gate publishes as traffic advice, by class of agents: as part of its state, and as metrics."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

_METRICS: Final = {
    "published": ("headgate_advice_fraction", "Published fraction of a class of agents; 0 if it is disallowed."),
    "fraction": ("headgate_advice_computed_fraction", "Computed fraction of a class; not published in mode monitor."),
    "demand": ("headgate_advice_demand", "Requests per second of a class that would arrive without advice."),
    "arrivals": ("headgate_advice_arrivals", "Requests per second of a class that arrive."),
    "in_force": ("headgate_advice_fraction_in_force", "Fraction that the agents of a class obey on average."),
    "agents": ("headgate_advice_agents", "Agents of a class with fresh advice, as far as they are remembered."),
    "compliance": ("headgate_advice_compliance", "Seen change of a class's requests divided by the expected change."),
}
"""Name and description of the metric of each value."""


class AdviceState(msgspec.Struct, frozen=True):
    """What is published as traffic advice for one class of agents, and why. Rates are in requests per second."""

    user_agent: str
    """The name of its entry."""
    fraction: float
    """The fraction that is computed; 0 if the class is disallowed. Without a computation, that of the entry."""
    published: float
    """The fraction that is published: another one in mode monitor, and with an override."""
    demand: float | None = None
    """What would arrive without advice, as estimated; null without a computation."""
    arrivals: float | None = None
    """What arrived in the window of the estimate, before anything was rejected."""
    in_force: float | None = None
    """The fraction in force among the agents in the last period."""
    agents: int | None = None
    """Agents with fresh advice."""
    compliance: float | None = None
    """The seen change of the arrivals divided by the expected one; 1 if the class obeys, null if it cannot be told."""
    reason: str = "static"
    """Why the fraction is what it is."""

    @property
    def label(self) -> str:
        """The name as the value of a label; what is not Unicode is replaced."""
        return self.user_agent.encode("utf-8", "replace").decode()


def advice_metrics(classes: Sequence[AdviceState]) -> Iterator[Metric]:
    """Make the metrics of all classes. Their names come from the configuration, so they may be labels."""
    for name, (metric, description) in _METRICS.items():
        values = [(each.label, value) for each in classes if (value := getattr(each, name)) is not None]
        if values:
            yield _gauge(metric, description, values)


def _gauge(metric: str, description: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(metric, description, labels=["user_agent"])
    for label, value in values:
        gauge.add_metric([label], value)
    return gauge
