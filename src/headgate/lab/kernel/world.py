"""A world in discrete time whose agents are arrays: the same scenarios, metrics and series as `headgate.lab.ticks`.

The origin is the tick world's own object, which decides in each tick how many requests it serves; what is done for each
agent is compiled. For the same scenario, policy and seed both worlds return equal results.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from headgate.errors import ConfigurationError
from headgate.lab.chance import Chance, Purpose
from headgate.lab.kernel.agents import create_agents, create_groups
from headgate.lab.kernel.calendar import calendar
from headgate.lab.kernel.chance import streams
from headgate.lab.kernel.records import COUNTS
from headgate.lab.kernel.steps import State, answer, choose, send, start
from headgate.lab.kernel.throttle import policy_table
from headgate.lab.policies import Policy
from headgate.lab.policies.throttle import Chromium, Draft
from headgate.lab.results import NO_SERIES, Metrics, Run, Series
from headgate.lab.scenario import MAX_TICK_AGENTS
from headgate.lab.ticks.agents import Counts
from headgate.lab.ticks.engine import START, Origin
from headgate.lab.ticks.measurement import metrics, series
from headgate.lab.ticks.origins import MeteredServer
from headgate.lab.ticks.settings import Cooling, Interactive, Metered, Pollers, Requesters, TickScenario
from headgate.lab.ticks.world import create_origin
from headgate.throttle import Policy as Backoff

POLICIES: Final[Mapping[str, Backoff | None]] = {"none": None, "draft": Draft.backoff, "chromium": Chromium.backoff}
"""The policies that this world knows."""


def run(scenario: TickScenario, policy: str, seed: int, *, record: bool = False) -> Run:
    """Run the world of a scenario under a policy; `record` asks for its series.

    Raises `ConfigurationError` for what only the tick world knows.
    """
    check(scenario, policy)
    world = World(scenario, policy, seed)
    world.run()
    return Run(policy, seed, world.metrics(), world.series() if record else NO_SERIES)


def check(scenario: TickScenario, policy: str) -> None:
    """Raise `ConfigurationError` for a policy or a scenario that this world does not know."""
    limit = f"a simulation of more than {MAX_TICK_AGENTS:,} agents"
    if policy not in POLICIES:
        names = ", ".join(POLICIES)
        example = ", ".join(f'"{name}"' for name in POLICIES)
        raise ConfigurationError(
            f"{limit} knows the policies {names}, not {policy!r}; "
            f"use fewer agents, or choose among them: --set 'policies=[{example}]'"
        )
    for group in scenario.agents:
        if not isinstance(group, (Requesters, Pollers, Interactive)):
            raise ConfigurationError(
                f"agents.{group.name}.kind: {limit} knows requester, poller, interactive; use fewer agents"
            )
    origin, *others = scenario.origins
    if others or origin.delay or origin.limit or not isinstance(origin, (Cooling, Metered)):
        raise ConfigurationError(
            f"origins: {limit} has one origin of the kind cooling or metered, without delay and limit; "
            "use fewer agents for others"
        )


class World:
    """The agents and the origin of a scenario under one policy."""

    def __init__(self, scenario: TickScenario, policy: str, seed: int) -> None:
        self._scenario = scenario
        self._origin: Origin = create_origin(scenario, 0, Policy, Chance(seed))
        settings = scenario.origins[0]
        ticks, backoff = scenario.total_ticks, POLICIES[policy]
        groups = create_groups(scenario.agents, throttled=backoff is not None)
        agents = create_agents(groups, seed)
        self._state = State(
            agents,
            groups,
            # An agent has at most one response in a tick.
            policy_table(backoff or Backoff(), ticks),
            calendar(scenario.tick, ticks),
            arrivals=np.zeros(agents.size, np.int32),
            origin=streams(seed, Purpose.ORIGIN, 0, 1),
            errors=scenario.errors if settings.errors is None else settings.errors,
            refused=np.zeros(ticks, np.int64),
            held=np.zeros(ticks + 1, np.int64),
        )

    def run(self) -> None:
        """Run all ticks."""
        start(self._state)
        for tick in range(self._scenario.total_ticks):
            if tick == self._scenario.warmup:
                for field in COUNTS:
                    self._state.groups[field] = 0
            self._run_tick(tick, START + tick * self._scenario.tick)

    def metrics(self) -> Metrics:
        """Return what was measured after the warm-up."""
        return metrics(self._scenario, self._counts(), [self._origin])

    def series(self) -> Series:
        """Return what was measured in each tick, the warm-up included."""
        holds = np.cumsum(self._state.held[:-1]).tolist()
        return series(self._scenario, [self._origin], holds=holds, refused=self._state.refused.tolist())

    def _run_tick(self, tick: int, now: float) -> None:
        origin, server = self._origin, self._origin.server
        count = send(self._state, tick, now)
        origin.load.append(count)
        served = 0
        if not server.is_down(now):
            served = server.count_served(count, 0)
            if served < count and isinstance(server, MeteredServer):
                choose(self._state, count, served)
        origin.useful += answer(self._state, tick, now, count, served)
        origin.end_tick(record=False)

    def _counts(self) -> dict[str, Counts]:
        counts = {}
        for settings, group in zip(self._scenario.agents, self._state.groups, strict=True):
            counts[settings.name] = Counts()
            for field in COUNTS:
                setattr(counts[settings.name], field, int(group[field]))
        return counts
