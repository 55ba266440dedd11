"""The throttles of all agents as records: the arithmetic of `headgate.throttle`, compiled.

A throttle of the lab has one target and sees neither a user gesture, an opt-out nor a bucket, and its clock never runs
backwards. What is left of it is the failure count and one horizon, the backoff's. Each function here gives exactly what
the method of `Throttle` with its name gives; powers come from a table that Python makes, because two libraries of
mathematical functions may round the same power differently.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.lab.kernel.chance import next_state, number
from headgate.lab.kernel.compiled import compiled
from headgate.lab.kernel.records import Agent
from headgate.throttle import Policy

FAILURE, SUCCESS, NEITHER = range(3)
"""The effect of a response on the failure count."""


class PolicyTable(NamedTuple):
    """A policy, with its delays before jitter."""

    ignored: int
    delays: NDArray[np.float64]
    """By effective failure count; infinite where the power overflows. A greater count has the last delay."""
    jitter: float
    maximum: float
    lifetime: float
    """Seconds that a target with failures is remembered after its release. One without is like a forgotten one."""


def policy_table(policy: Policy, failures: int) -> PolicyTable:
    """Return the table of a policy that is exact up to this failure count."""
    # Without jitter and maximum, what is left of the formula is the product with the power.
    return PolicyTable(
        policy.num_errors_to_ignore,
        np.array([_delay(policy, count) for count in range(max(failures - policy.num_errors_to_ignore, 0) + 1)]),
        float(policy.jitter_factor),
        float(policy.maximum_backoff),
        float(policy.failing_lifetime),
    )


def _delay(policy: Policy, count: int) -> float:
    """Return the delay before jitter and maximum, as `Policy.delay` computes it."""
    if count <= 0 or not policy.initial_backoff:
        return 0.0
    try:
        return policy.initial_backoff * policy.multiply_factor ** (count - policy.first_delay_is_initial)
    except OverflowError:
        return math.inf


@compiled
def advance(instant: float, seconds: float) -> float:
    """Add `seconds` to `instant`, rounding down."""
    total = instant + seconds
    if total - instant > seconds or total - seconds > instant:
        total = np.nextafter(total, -np.inf)
    return total


@compiled
def release_time(agent: Agent, now: float) -> float:
    """Return the instant before which the agent must not send; `ASAP` if it may send now."""
    return agent.backoff if agent.backoff > now else -np.inf


@compiled
def response_received(agent: Agent, table: PolicyTable, outcome: int, now: float) -> None:
    """Count a response; a failure draws its jitter."""
    if now - agent.backoff >= table.lifetime:
        agent.failures = 0  # the target has expired
    if outcome == FAILURE:
        agent.failures += 1
        agent.jitters = next_state(agent.jitters)
        until = advance(now, _jittered(table, agent.failures - table.ignored, number(agent.jitters)))
        agent.backoff = max(agent.backoff, until)
    elif outcome == SUCCESS:
        agent.failures = max(agent.failures - 1, 0)
        agent.backoff = max(agent.backoff, now)


@compiled
def _jittered(table: PolicyTable, effective: int, drawn: float) -> float:
    """Return the delay of an effective failure count, as `Policy.delay` computes it."""
    if effective <= 0:
        return 0.0
    delay: float = table.delays[min(effective, table.delays.size - 1)]
    if delay == np.inf:
        return table.maximum
    delay -= drawn * table.jitter * delay
    return min(delay, table.maximum)
