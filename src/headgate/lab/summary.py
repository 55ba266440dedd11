"""How the runs of all seeds become the metrics of each policy: the key `summary` of a scenario selects one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headgate.lab.results import Metrics, Run, mean_metrics
from headgate.lab.scenario import Scenario

Summarise = Callable[[Scenario, Mapping[str, Sequence[Run]]], dict[str, Metrics]]
"""Takes the runs of each policy, in the order of the seeds; returns the metrics of each."""


def mean(scenario: Scenario, runs: Mapping[str, Sequence[Run]]) -> dict[str, Metrics]:  # noqa: ARG001  # the common form
    """Return the mean of each metric over the seeds."""
    return {policy: mean_metrics(of_policy) for policy, of_policy in runs.items()}


SUMMARIES: Final[Mapping[str, Summarise]] = {"mean": mean}
"""The summaries by name."""
