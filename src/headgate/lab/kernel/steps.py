"""The steps of a tick, in the order of `headgate.lab.ticks.engine`, compiled."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.lab.kernel.agents import SENDS, answered, attempt, begin, requests
from headgate.lab.kernel.calendar import END, Calendar, enter
from headgate.lab.kernel.chance import next_state, number
from headgate.lab.kernel.compiled import compiled
from headgate.lab.kernel.records import REQUESTER
from headgate.lab.kernel.throttle import PolicyTable


class State(NamedTuple):
    """A world with one origin."""

    agents: NDArray[np.void]
    groups: NDArray[np.void]
    policy: PolicyTable
    calendar: Calendar
    arrivals: NDArray[np.int32]
    """The agents whose requests arrive in a tick."""
    origin: NDArray[np.uint64]
    """The stream of the origin, one element."""
    errors: float
    """The share of served requests that are answered with an error."""
    refused: NDArray[np.int64]
    """The attempts of pollers and users in each tick that their throttles refused."""
    held: NDArray[np.int64]
    """By how many the agents that wait since such a refusal become more in each tick."""


@compiled
def start(state: State) -> None:
    """Prepare all agents for their first attempts."""
    agents, groups = state.agents, state.groups
    for index in range(agents.size):
        agent = agents[index]
        enter(state.calendar, agents, index, 0, begin(agent, groups[agent.group]))


@compiled
def send(state: State, tick: int, now: float) -> int:
    """Ask all requesters, then the agents that are due in a tick; return the number of requests that arrive."""
    agents, groups, arrivals = state.agents, state.groups, state.arrivals
    count = 0
    for number_of_group in range(groups.size):
        group = groups[number_of_group]
        if group.kind == REQUESTER:
            for index in range(group.first, group.end):
                if requests(agents[index], group, now):
                    arrivals[count] = index
                    count += 1
    index = state.calendar.first[tick]
    while index != END:
        agent = agents[index]
        following = agent.following
        seconds = attempt(agent, groups[agent.group], now)
        if seconds == SENDS:
            arrivals[count] = index
            count += 1
        else:
            state.refused[tick] += 1
            state.held[tick] += 1
            state.held[enter(state.calendar, agents, index, tick, seconds)] -= 1
        index = following
    return count


@compiled
def choose(state: State, count: int, served: int) -> None:
    """Move requests that are chosen at random to the front, as `MeteredServer.choose` does."""
    arrivals, origin = state.arrivals, state.origin
    for place in range(served):
        origin[0] = next_state(origin[0])
        other = place + int(number(origin[0]) * (count - place))
        arrivals[place], arrivals[other] = arrivals[other], arrivals[place]


@compiled
def answer(state: State, tick: int, now: float, count: int, served: int) -> int:
    """Answer all requests of a tick, the first `served` with 200; return how many responses the agents could use."""
    agents, groups, origin = state.agents, state.groups, state.origin
    useful = 0
    for place in range(count):
        is_ok = place < served
        if is_ok and state.errors > 0.0:
            origin[0] = next_state(origin[0])
            is_ok = number(origin[0]) >= state.errors
        index = state.arrivals[place]
        agent = agents[index]
        group = groups[agent.group]
        is_useful, seconds = answered(agent, group, state.policy, now, is_ok)
        useful += is_useful
        if group.kind != REQUESTER:
            enter(state.calendar, agents, index, tick, seconds)
    return useful
