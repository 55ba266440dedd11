"""How the runs of all seeds become the metrics of each policy: the key `summary` of a scenario selects one."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headgate.errors import ConfigurationError
from headgate.lab.results import Metrics, Run, mean_metrics
from headgate.lab.scenario import Scenario

Summarise = Callable[[Scenario, Mapping[str, Sequence[Run]]], dict[str, Metrics]]
"""Takes the runs of each policy, in the order of the seeds; returns the metrics of each."""


def mean(scenario: Scenario, runs: Mapping[str, Sequence[Run]]) -> dict[str, Metrics]:  # noqa: ARG001  # the common form
    """Return the mean of each metric over the seeds."""
    return {policy: mean_metrics(of_policy) for policy, of_policy in runs.items()}


def attack(scenario: Scenario, runs: Mapping[str, Sequence[Run]]) -> dict[str, Metrics]:
    """Return the means, and in how many seeds a policy is better than "none" in all four directions.

    `seeds_in_order` counts the seeds with fewer overloaded ticks, a lower maximum, a higher success of clients, and
    clients that are blocked less than attackers. Without "none" it is left out.
    """
    metrics = mean(scenario, runs)
    unprotected = runs.get("none", ())
    for policy, of_policy in runs.items():
        metrics[policy] = {name: metrics[policy][name] for name in ATTACK_METRICS}
        if unprotected:
            pairs = zip(of_policy, unprotected, strict=True)
            metrics[policy]["seeds_in_order"] = float(sum(_is_in_order(run, other) for run, other in pairs))
    return metrics


ATTACK_METRICS: Final = (
    "overloaded_ticks",
    "max_requests",
    "client_success",
    "client_blocked",
    "attacker_success",
    "attacker_blocked",
)
"""The metrics of an attack, in the order in which they are printed."""


def _is_in_order(run: Run, unprotected: Run) -> bool:
    with_policy, without = ({name: _number(one, name) for name in ATTACK_METRICS} for one in (run, unprotected))
    return (
        with_policy["overloaded_ticks"] < without["overloaded_ticks"]
        and with_policy["max_requests"] < without["max_requests"]
        and with_policy["client_success"] > without["client_success"]
        and with_policy["client_blocked"] < with_policy["attacker_blocked"]
    )


def downtime(scenario: Scenario, runs: Mapping[str, Sequence[Run]]) -> dict[str, Metrics]:
    """Return by how much a policy lengthens the downtime that agents perceive, in each trial and in their sum.

    Each trial has a perceived downtime, as a share of its downtime. `trials` has the mean with the policy divided by
    the mean with "none"; `perceived_downtime_ratio` is the sum over all trials with the policy divided by that with
    "none". Without "none" there are only the means.
    """
    means = mean(scenario, runs)
    unprotected = means.get("none")
    if unprotected is None:
        return means
    without = _list(unprotected)
    return {
        policy: {
            "perceived_downtime_ratio": _ratio(math.fsum(_list(metrics)), math.fsum(without)),
            "trials": [_ratio(part, whole) for part, whole in zip(_list(metrics), without, strict=True)],
        }
        for policy, metrics in means.items()
    }


def _number(run: Run, name: str) -> float:
    value = run.metrics[name]
    assert not isinstance(value, list)
    return value


def _list(metrics: Metrics) -> list[float]:
    value = metrics["perceived_downtime"]
    assert isinstance(value, list)
    return value


def _ratio(part: float, whole: float) -> float:
    """Return a ratio of perceived downtimes; 1 if both are 0."""
    if part and not whole:
        raise ConfigurationError("trials: without a policy no agent perceives one of the downtimes; use more seeds")
    return part / whole if whole else 1.0


SUMMARIES: Final[Mapping[str, Summarise]] = {"mean": mean, "attack": attack, "downtime": downtime}
"""The summaries by name."""
