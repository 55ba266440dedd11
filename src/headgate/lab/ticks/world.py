"""A world in discrete time: it is built from a scenario, run by the engine, and measured."""

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.lab.chance import Chance, Draw, Purpose
from headgate.lab.policies import Policy
from headgate.lab.policies.catalogue import find_policy
from headgate.lab.results import NO_SERIES, Metrics, Run, Series
from headgate.lab.ticks.agents import Agent, CalendarAgent, Counts, Poller, Requester, Route, User
from headgate.lab.ticks.client_limit import ClientLimit
from headgate.lab.ticks.crawlers import Connection, Crawl, Prefetcher
from headgate.lab.ticks.downtime import perceived_downtime
from headgate.lab.ticks.engine import START, TOLERANCE, Engine, Origin
from headgate.lab.ticks.measurement import metrics, series
from headgate.lab.ticks.origins import Pace, new_server
from headgate.lab.ticks.settings import (
    AgentGroup,
    Crawlers,
    Group,
    Interactive,
    Pollers,
    Prefetchers,
    Requesters,
    TickScenario,
)


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
        self.crawls: dict[str, list[Crawl]] = {group.name: [] for group in scenario.agents}
        """The crawls of each group of crawlers."""
        self.agents: list[Agent] = []
        """All agents, by number."""
        with _without_garbage_collection():
            for group in scenario.agents:
                self.agents += self._agents(group, len(self.agents))
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
        fetched = {name: sum(crawl.fetched for crawl in crawls) for name, crawls in self.crawls.items()}
        return metrics(self.scenario, self.counts, self.origins, fetched=fetched)

    def series(self) -> Series:
        """Return what was measured in each tick, the warm-up included."""
        return series(self.scenario, self.origins, holds=self._engine.holds, refused=self._engine.refused)

    def _begin_tick(self, tick: int) -> None:
        if tick == self.scenario.warmup:
            for counts in self.counts.values():
                counts.reset()

    def _agents(self, group: Group, first: int) -> Iterator[Agent]:
        """Create the agents of a group, numbered from `first` on."""
        origins = self._origins_of(group)
        kind = self._policy if group.obeys else Policy
        counts = self.counts[group.name]
        crawl: Crawl | None = None
        for index in range(group.size):
            number = first + index
            draw = self._chance.stream(Purpose.BEHAVIOUR, number)
            is_first = index % group.sharing == 0
            if is_first and isinstance(group, Crawlers):
                crawl = Crawl(group.pages)
                self.crawls[group.name].append(crawl)
            agent = _agent(number, group, counts, draw, crawl)
            if is_first:
                client, jitter = number, self._chance.stream(Purpose.POLICY, number)
                routes = [Route(origin, kind(agent, origin.server, jitter)) for origin in origins]
            agent.use(routes, client)
            yield agent

    def _origins_of(self, group: AgentGroup) -> list[Origin]:
        names = group.origins or (self.scenario.origins[0].name,)
        return [origin for origin in self.origins if origin.server.name in names]


def create_origin(scenario: TickScenario, number: int, policy: type[Policy], chance: Chance) -> Origin:
    """Return the origin of a scenario with this number, and what its operator does under a policy."""
    settings = scenario.origins[number]
    errors = scenario.errors if settings.errors is None else settings.errors
    pace = Pace(scenario.capacities[number], scenario.tick, errors)
    server = new_server(settings, pace, chance.stream(Purpose.ORIGIN, number))
    server.outages = [(START + start, START + end) for start, end in settings.outages]
    if scenario.outage:
        first, after = scenario.outage_ticks
        # The server is down strictly between the instants: in the ticks from `first` to the one before `after`.
        server.outages.append((START + (first - 0.5) * scenario.tick, START + (after - 0.5) * scenario.tick))
    gate_draw = chance.stream(Purpose.GATE, number)
    if settings.rule is not None:
        server.limit = ClientLimit(server, gate_draw, settings.rule)
    server.policy = policy.origin_policy(server, gate_draw)
    return Origin(server, math.ceil(settings.delay / scenario.tick - TOLERANCE))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Create many objects without the garbage collector, which would look at all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _agent(number: int, group: Group, counts: Counts, draw: Draw, crawl: Crawl | None) -> Agent:
    """Return an agent of the kind that its group has."""
    if isinstance(group, Requesters):
        return Requester(number, group, counts, draw, now=START)
    if isinstance(group, Pollers):
        return Poller(number, group, counts, draw)
    if isinstance(group, Interactive):
        return User(number, group, counts, draw)
    if isinstance(group, Prefetchers):
        return Prefetcher(number, group, counts, draw)
    assert crawl is not None  # every crawler has one
    return Connection(number, group, counts, draw, crawl=crawl)
