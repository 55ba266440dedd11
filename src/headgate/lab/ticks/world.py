"""A world in discrete time: it is built from a scenario, run by the engine, and measured."""

from headgate.lab.chance import Chance, Purpose
from headgate.lab.policies import Policy
from headgate.lab.policies.catalogue import find_policy
from headgate.lab.results import NO_SERIES, Metrics, Run, Series
from headgate.lab.ticks.agents import Agent, CalendarAgent, Counts, Poller, Requester, Route, User
from headgate.lab.ticks.downtime import perceived_downtime
from headgate.lab.ticks.engine import START, Engine, Origin
from headgate.lab.ticks.measurement import metrics, series
from headgate.lab.ticks.origins import CoolingServer, MeteredServer, Server
from headgate.lab.ticks.settings import AgentGroup, Cooling, Group, Pollers, Requesters, TickScenario


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
        self.origins = [create_origin(scenario, number, policy, chance) for number in range(len(scenario.origins))]
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
        return metrics(self.scenario, self.counts, self.origins)

    def series(self) -> Series:
        """Return what was measured in each tick, the warm-up included."""
        return series(self.scenario, self.origins, holds=self._engine.holds, refused=self._engine.refused)

    def _begin_tick(self, tick: int) -> None:
        if tick == self.scenario.warmup:
            for counts in self.counts.values():
                counts.reset()

    def _of(self, group: AgentGroup) -> Counts:
        return self.counts[group.name]

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


def create_origin(scenario: TickScenario, number: int, policy: type[Policy], chance: Chance) -> Origin:
    """Return the origin of a scenario with this number, and what its operator does under a policy."""
    settings, capacity = scenario.origins[number], scenario.capacities[number]
    draw = chance.stream(Purpose.ORIGIN, number)
    server: Server
    if isinstance(settings, Cooling):
        server = CoolingServer(settings, capacity=capacity, tick=scenario.tick, errors=scenario.errors, draw=draw)
    else:
        server = MeteredServer(settings, capacity=capacity, tick=scenario.tick, errors=scenario.errors, draw=draw)
    if scenario.outage:
        start, end = scenario.outage_ticks
        # The server is down strictly between the instants: in the ticks from `start` to the one before `end`.
        server.down = (START + (start - 0.5) * scenario.tick, START + (end - 0.5) * scenario.tick)
    server.policy = policy.origin_policy(server, chance.stream(Purpose.GATE, number))
    return Origin(server, round(settings.delay / scenario.tick + 0.5 - 1e-9))
