"""What agents do, as functions of their records: the arithmetic of `headgate.lab.ticks.agents`, compiled.

Agents are numbered as in the tick world, group by group. Each function gives exactly what the method with its name
gives, and draws the same numbers in the same order. All agents request the same origin.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headgate.lab.chance import Purpose
from headgate.lab.kernel.chance import next_state, number, streams
from headgate.lab.kernel.compiled import compiled
from headgate.lab.kernel.records import AGENT, GROUP, POLLER, REQUESTER, USER, Agent, Group
from headgate.lab.kernel.throttle import FAILURE, SUCCESS, PolicyTable, release_time, response_received
from headgate.lab.ticks.engine import START
from headgate.lab.ticks.settings import AgentGroup, Interactive, Pollers, Requesters
from headgate.release import ASAP, NEVER

SENDS: Final = -1.0
"""What `attempt` returns for an agent that sends a request, in place of the seconds until its next attempt."""


def create_groups(settings: Sequence[AgentGroup], *, throttled: bool) -> NDArray[np.void]:
    """Return an array of `GROUP`; the agents have throttles if `throttled`, except groups that do not obey."""
    groups = np.zeros(len(settings), GROUP)
    groups["end"] = list(accumulate(group.count for group in settings))
    groups["first"] = groups["end"] - [group.count for group in settings]
    for index, group in enumerate(settings):
        for field, value in _fields(group).items():
            groups[field][index] = value
        groups["throttled"][index] = throttled and group.obeys
    return groups


def _fields(group: AgentGroup) -> dict[str, Any]:
    if isinstance(group, Requesters):
        return {"kind": REQUESTER, "interval": group.interval, "jitter": group.jitter, "start": group.start}
    if isinstance(group, Pollers):
        return {"kind": POLLER, "interval": group.interval}
    assert isinstance(group, Interactive)
    shortest, longest = group.retry
    fields = {"kind": USER, "interval": group.think, "patience": group.deadline}
    return fields | {"shortest": shortest, "longest": longest}


def create_agents(groups: NDArray[np.void], seed: int) -> NDArray[np.void]:
    """Return an array of `AGENT`: the agents of all groups before their first attempts."""
    agents = np.zeros(groups["end"][-1], AGENT)
    agents["draws"] = streams(seed, Purpose.BEHAVIOUR, 0, agents.size)
    agents["jitters"] = streams(seed, Purpose.POLICY, 0, agents.size)
    agents["instant"], agents["backoff"] = NEVER, ASAP
    for index, group in enumerate(groups):
        agents["group"][group["first"] : group["end"]] = index
    return agents


@compiled
def begin(agent: Agent, group: Group) -> float:
    """Prepare an agent for its first attempt; return the seconds until then for a poller or user."""
    if group.kind == REQUESTER:
        agent.instant = START + group.start * _draw(agent) - group.interval
        return NEVER
    return group.interval * _draw(agent) if group.kind == POLLER else _thinks(agent, group)


@compiled
def requests(agent: Agent, group: Group, now: float) -> bool:
    """Return whether a requester sends a request."""
    interval = group.interval
    if group.jitter != 0.0:
        interval += group.jitter * (2.0 * _draw(agent) - 1.0)
    if now - agent.instant <= interval:
        return False
    agent.instant = now
    if group.throttled and release_time(agent, now) > now:
        group.refused += 1
        return False
    return True


@compiled
def attempt(agent: Agent, group: Group, now: float) -> float:
    """Return `SENDS` if a poller or user sends a request, otherwise the seconds until its next attempt."""
    if group.kind == USER and agent.instant == NEVER:
        agent.instant = now + group.patience
    release = release_time(agent, now) if group.throttled else ASAP
    if release <= now:
        return SENDS
    group.refused += 1
    if group.kind == USER:
        return _tries_again(agent, group, max(release - now, _pause(agent, group)), now)
    return max(release - now, group.interval)


@compiled
def answered(agent: Agent, group: Group, table: PolicyTable, now: float, is_ok: bool) -> tuple[bool, float]:  # noqa: FBT001 - one caller
    """Take a response; return whether the agent could use it, and the seconds until its next attempt."""
    if group.throttled:
        response_received(agent, table, SUCCESS if is_ok else FAILURE, now)
    if is_ok:
        group.answered += 1
    else:
        group.failed += 1
    if group.kind != USER:
        return is_ok, group.interval
    if not is_ok:
        return False, _tries_again(agent, group, _pause(agent, group), now)
    if now > agent.instant:
        return False, _gives_up(agent, group, now)
    group.visited += 1
    agent.instant = NEVER
    return True, _thinks(agent, group)


@compiled
def _tries_again(agent: Agent, group: Group, seconds: float, now: float) -> float:
    return seconds if now + seconds < agent.instant else _gives_up(agent, group, now)


@compiled
def _gives_up(agent: Agent, group: Group, now: float) -> float:
    """End a visit at its deadline; return the seconds until the next one."""
    group.lost += 1
    left = max(agent.instant - now, 0.0)
    agent.instant = NEVER
    return left + _thinks(agent, group)


@compiled
def _pause(agent: Agent, group: Group) -> float:
    return group.shortest + (group.longest - group.shortest) * _draw(agent)


@compiled
def _thinks(agent: Agent, group: Group) -> float:
    return -group.interval * math.log(1.0 - _draw(agent))


@compiled
def _draw(agent: Agent) -> float:
    """Return the next number from [0, 1) of an agent's behaviour."""
    agent.draws = next_state(agent.draws)
    return number(agent.draws)
