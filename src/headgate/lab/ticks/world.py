"""A world in discrete time: it is built from a scenario, run by the engine, and measured."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from headgate.lab.chance import Chance, Purpose
from headgate.lab.policies import Policy
from headgate.lab.policies.catalogue import find_policy
from headgate.lab.results import NO_SERIES, Metrics, Run, Series
from headgate.lab.ticks.agents import Agent, CalendarAgent, Counts, Poller, Requester, Route, User
from headgate.lab.ticks.downtime import perceived_downtime
from headgate.lab.ticks.engine import START, Engine, Origin
from headgate.lab.ticks.origins import CoolingServer, MeteredServer, Server
from headgate.lab.ticks.settings import AgentGroup, Cooling, Group, Interactive, Pollers, Requesters, TickScenario
from headgate.lab.ticks.settings import Origin as OriginSettings

RECOVERY: Final = 60.0
"""Seconds after an outage in which the recovery is measured."""


def run(scenario: TickScenario, policy: str, seed: int, *, record: bool = False) -> Run:
    """Run the world of a scenario under a policy, or its trials of downtime; `record` asks for its series."""
    kind = find_policy(policy, scenario.folder)
    chance = Chance(seed)
    if scenario.trials:
        downtimes = [perceived_downtime(trial, kind, chance, index) for index, trial in enumerate(scenario.trials)]
        return Run(policy, seed, {"perceived_downtime": downtimes})
    world = World(scenario, kind, chance)
    world.run(record=record)
    return Run(policy, seed, world.metrics(), world.series() if record else NO_SERIES)


class World:
    """The agents and origins of a scenario under one policy. Agents are numbered in the order of the scenario."""

    def __init__(self, scenario: TickScenario, policy: type[Policy], chance: Chance) -> None:
        self.scenario = scenario
        """The scenario."""
        self.counts = {group.name: Counts() for group in scenario.agents}
        """The counts of each group of agents."""
        self._policy = policy
        self._chance = chance
        self.origins = [self._origin(number) for number in range(len(scenario.origins))]
        """The origins."""
        self.agents = [agent for group in scenario.agents for agent in self._agents(group)]
        """All agents, by number."""
        self._engine = Engine(
            [agent for agent in self.agents if isinstance(agent, Requester)],
            [agent for agent in self.agents if isinstance(agent, CalendarAgent)],
            self.origins,
            length=scenario.tick,
            ticks=scenario.total_ticks,
        )

    def run(self, *, record: bool) -> None:
        """Run all ticks."""
        self._engine.run(self._begin_tick, record=record)

    def metrics(self) -> Metrics:
        """Return what was measured after the warm-up."""
        metrics: Metrics = {}
        for settings, origin in zip(self.scenario.origins, self.origins, strict=True):
            prefix = f"{settings.name}_" if len(self.origins) > 1 else ""
            metrics |= {prefix + name: value for name, value in self._origin_metrics(settings, origin).items()}
        for group in self.scenario.agents:
            metrics |= {f"{group.name}_{name}": value for name, value in _group_metrics(group, self._of(group)).items()}
        metrics["local_refusals"] = float(sum(counts.refused for counts in self.counts.values()))
        return metrics

    def series(self) -> Series:
        """Return what was measured in each tick, the warm-up included."""
        ticks, length = range(self.scenario.total_ticks), self.scenario.tick
        values: dict[str, list[float]] = {}
        for origin in self.origins:
            prefix = f"{origin.server.name}_" if len(self.origins) > 1 else ""
            capacity = origin.server.capacity_per_tick
            useful = [after - before for before, after in pairwise([0, *origin.useful_by_tick])]
            values[f"{prefix}load"] = [count / capacity for count in origin.load]
            values[f"{prefix}goodput"] = [count / capacity for count in useful]
            values |= {prefix + name: signal for name, signal in origin.signals.items()}
        values["holds"] = [float(count) for count in self._engine.holds]
        values["local_refusals"] = [float(count) for count in self._engine.refused]
        return Series([tick * length for tick in ticks], values)

    def _begin_tick(self, tick: int) -> None:
        if tick == self.scenario.warmup:
            for counts in self.counts.values():
                counts.reset()

    def _of(self, group: AgentGroup) -> Counts:
        return self.counts[group.name]

    def _origin(self, number: int) -> Origin:
        scenario, settings = self.scenario, self.scenario.origins[number]
        capacity, draw = scenario.capacities[number], self._chance.stream(Purpose.ORIGIN, number)
        server: Server
        if isinstance(settings, Cooling):
            server = CoolingServer(settings, capacity=capacity, tick=scenario.tick, errors=scenario.errors, draw=draw)
        else:
            server = MeteredServer(settings, capacity=capacity, tick=scenario.tick, errors=scenario.errors, draw=draw)
        if scenario.outage:
            start, end = scenario.outage_ticks
            # The server is down strictly between the instants: in the ticks from `start` to the one before `end`.
            server.down = (START + (start - 0.5) * scenario.tick, START + (end - 0.5) * scenario.tick)
        server.policy = self._policy.origin_policy(server, self._chance.stream(Purpose.GATE, number))
        return Origin(server, round(settings.delay / scenario.tick + 0.5 - 1e-9))

    def _agents(self, group: Group) -> list[Agent]:
        """Create the agents of a group; their numbers follow those of the groups before it."""
        first = 0
        for other in self.scenario.agents:
            if other is group:
                break
            first += other.count
        return [self._agent(number, group) for number in range(first, first + group.count)]

    def _agent(self, number: int, group: Group) -> Agent:
        counts, draw = self._of(group), self._chance.stream(Purpose.BEHAVIOUR, number)
        agent: Agent
        if isinstance(group, Requesters):
            agent = Requester(number, group, counts, draw, now=START)
        elif isinstance(group, Pollers):
            agent = Poller(number, group, counts, draw)
        else:
            agent = User(number, group, counts, draw)
        kind = self._policy if group.obeys else Policy
        jitter = self._chance.stream(Purpose.POLICY, number)
        agent.use([Route(origin, kind(agent, origin.server, jitter)) for origin in self._origins_of(group)])
        return agent

    def _origins_of(self, group: AgentGroup) -> list[Origin]:
        names = group.origins or (self.scenario.origins[0].name,)
        return [origin for origin in self.origins if origin.server.name in names]

    def _origin_metrics(self, settings: OriginSettings, origin: Origin) -> Mapping[str, float]:
        warmup, capacity = self.scenario.warmup, origin.server.capacity_per_tick
        load = origin.load[warmup:]
        if isinstance(settings, Cooling):
            overloaded = sum(count > capacity for count in load)
            return {"overloaded_ticks": float(overloaded), "max_requests": float(max(load))}
        metrics = {
            "goodput": _useful(origin, warmup, len(origin.load)) / (len(load) * capacity),
            "server_load": sum(load) / (len(load) * capacity),
        }
        if self.scenario.outage:
            _, end = self.scenario.outage_ticks
            ticks = min(round(RECOVERY / self.scenario.tick), len(origin.load) - end)
            metrics["recovery_goodput"] = _useful(origin, end, end + ticks) / (max(ticks, 1) * capacity)
        return metrics


def _useful(origin: Origin, start: int, end: int) -> int:
    """Return the responses that agents could use in the ticks from `start` to the one before `end`."""
    until: Sequence[int] = [0, *origin.useful_by_tick]
    return until[end] - until[start]


def _group_metrics(group: AgentGroup, counts: Counts) -> Mapping[str, float]:
    if isinstance(group, Interactive):
        return {"success": _share(counts.visited, counts.visited + counts.lost)}
    metrics = {"success": _share(counts.answered, counts.attempts)}
    if isinstance(group, Requesters):
        metrics["blocked"] = _share(counts.refused, counts.attempts)
    return metrics


def _share(part: int, whole: int) -> float:
    """Return a share of what happened; 0 if nothing did."""
    return part / whole if whole else 0.0
