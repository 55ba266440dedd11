"""The throttles of all agents in arrays: the arithmetic of `headgate.throttle`, compiled.

A throttle of the lab has one target and sees neither a user gesture, an opt-out nor a bucket, and its clock never runs
backwards. What is left of it is the failure count and one horizon, the backoff's. Each function here gives exactly what
the method of `Throttle` with its name gives; powers come from a table that Python makes, because two libraries of
mathematical functions may round the same power differently.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.lab.chance import Purpose
from headgate.lab.kernel.chance import Streams, draw, streams
from headgate.lab.kernel.compiled import compiled
from headgate.release import ASAP
from headgate.throttle import Policy

FAILURE, SUCCESS, NEITHER = range(3)
"""The effect of a response on the failure count."""


class ThrottleArrays(NamedTuple):
    """One entry for each agent."""

    counts: NDArray[np.int32]
    """The failure counts."""
    backoffs: NDArray[np.float64]
    """The instants at which the backoffs end; `ASAP` for a target without a response."""
    jitters: Streams


class PolicyTable(NamedTuple):
    """A policy, with its delays before jitter."""

    ignored: int
    delays: NDArray[np.float64]
    """By effective failure count; infinite where the power overflows. A greater count has the last delay."""
    jitter: float
    maximum: float
    lifetime: float
    """Seconds that a target with failures is remembered after its release. One without is like a forgotten one."""


def throttle_arrays(seed: int, agents: int) -> ThrottleArrays:
    """Return the throttles of as many agents, all without a response."""
    jitters = streams(seed, Purpose.POLICY, 0, agents)
    return ThrottleArrays(np.zeros(agents, np.int32), np.full(agents, ASAP), jitters)


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
def release_time(throttles: ThrottleArrays, agent: int, now: float) -> float:
    """Return the instant before which the agent must not send; `ASAP` if it may send now."""
    release: float = throttles.backoffs[agent]
    return release if release > now else -np.inf


@compiled
def response_received(throttles: ThrottleArrays, table: PolicyTable, agent: int, outcome: int, now: float) -> None:
    """Count a response; a failure draws its jitter."""
    counts, backoffs = throttles.counts, throttles.backoffs
    if now - backoffs[agent] >= table.lifetime:
        counts[agent] = 0  # the target has expired
    if outcome == FAILURE:
        counts[agent] += 1
        until = advance(now, _jittered(table, counts[agent] - table.ignored, draw(throttles.jitters, agent)))
        backoffs[agent] = max(backoffs[agent], until)
    elif outcome == SUCCESS:
        counts[agent] = max(counts[agent] - 1, 0)
        backoffs[agent] = max(backoffs[agent], now)


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
