"""One run of the world of rates.

A tick has three steps: agents whose advice is stale fetch it; every agent sends its requests, of which the origin
serves what its capacity permits; the law decides, if one of its periods has ended.
"""

from typing import Final

import msgspec

from headgate.advice import AdviceEntry, AgentIdentity, parse_advice
from headgate.advice.identity import EVERY_AGENT
from headgate.advice_control import Entry, document
from lab.chance import Chance, Draw
from lab.rates.laws import LAWS, Law
from lab.rates.poisson import normal, poisson
from lab.rates.settings import Agents, RateScenario, profile
from lab.results import NO_SERIES, Run, Series

START: Final = 2.0**30
"""The instant at which worlds begin, in seconds since 1970."""
RETRY: Final = 60.0
"""Seconds after which a lost fetch is repeated."""


class Population:
    """The agents of one group."""

    def __init__(self, settings: Agents, first: int, chance: Chance, *, capacity: float, max_age: float) -> None:
        self.settings = settings
        """The table of the scenario."""
        self.sent = 0
        """Requests in the last tick."""
        self._profile = settings.profile()
        self._capacity = capacity
        self._max_age = max_age
        sizes = [rank**-settings.zipf for rank in range(1, settings.count + 1)]
        self._sizes = [size / sum(sizes) for size in sizes]
        self._numbers = range(first, first + settings.count)
        self._fractions = [1.0] * settings.count
        self._draws = [chance.stream("requests", number) for number in self._numbers]
        self._fetch_draws = [chance.stream("fetches", number) for number in self._numbers]
        self._fetch_at = [self._first_fetch(draw) for draw in self._fetch_draws]

    def demand(self, time: float) -> float:
        """Return the requests per second at an instant that the agents would send without advice."""
        return self._profile.value(time) * self._capacity

    def fetch(self, law: Law, *, now: float) -> None:
        """Let every agent whose advice is stale fetch it."""
        for index, due in enumerate(self._fetch_at):
            if due > now:
                continue
            if self.settings.lost and self._fetch_draws[index]() < self.settings.lost:
                if self.settings.after_loss == "nothing":
                    self._fractions[index] = 1.0
                self._fetch_at[index] = now + RETRY
                continue
            entry = next(one for one in law.entries if one.user_agent == self.settings.entry)
            self._fetch_at[index] = now + self._max_age
            if self.settings.obeys:
                self._fractions[index] = min(1.0, self.settings.response * fraction_of(entry))

    def send(self, law: Law, *, time: float, tick: float) -> None:
        """Let every agent send its requests of a tick."""
        requests, self.sent = self.demand(time + tick / 2) * tick, 0
        for index, size in enumerate(self._sizes):
            count = poisson(requests * size * self._fractions[index], self._draws[index])
            if count:
                law.arrived(self.settings.entry, count)
                self.sent += count

    def _first_fetch(self, draw: Draw) -> float:
        if self.settings.fetches == "never":
            return float("inf")
        return START + (0.0 if self.settings.fetches == "synchronised" else self._max_age * draw())


def fraction_of(entry: Entry) -> float:
    """Return the part of its traffic that an agent sends after it has read a document with this entry."""
    identity = AgentIdentity.of("LabAgent") if entry.user_agent == EVERY_AGENT else AgentIdentity.of(entry.user_agent)
    read = parse_advice(document([entry]).decode(), identity)
    assert isinstance(read, AdviceEntry)  # the document has one for this identity
    return 0.0 if read.disallowed else read.fraction


def run(scenario: RateScenario, policy: str, seed: int, *, record: bool = False) -> Run:
    """Run the scenario under one law with one seed."""
    world = _World(scenario, policy, Chance(seed))
    for tick in range(scenario.ticks):
        world.step(tick * scenario.tick)
    return Run(policy, seed, world.metrics(), Series(world.times, world.values) if record else NO_SERIES)


class _World:
    """The populations, the law, and what is measured in each tick."""

    def __init__(self, scenario: RateScenario, law: str, chance: Chance) -> None:
        self.times: list[float] = []
        self.values: dict[str, list[float]] = {name: [] for name in ("demand", "load", "goodput", "served")}
        self._scenario = scenario
        self._kind = LAWS[law]
        self._law = self._kind(scenario.law_settings())
        self._restart = scenario.restart
        self._changes = profile(scenario.changes)
        self._people = profile(scenario.people)
        self._people_draw = chance.stream("people")
        self._capacity_draw = chance.stream("capacity")
        self._populations: list[Population] = []
        first = 0
        for agents in scenario.agents:
            self._populations.append(
                Population(agents, first, chance, capacity=scenario.capacity, max_age=scenario.max_age)
            )
            first += agents.count
        self._law.update(now=START, capacity=scenario.capacity)

    def step(self, time: float) -> None:
        """Simulate the tick that begins at `time`."""
        scenario, now = self._scenario, START + time
        if self._restart is not None and time >= self._restart:
            self._restart = None
            self._law = self._kind(
                scenario.law_settings(),
                start=[
                    msgspec.structs.replace(entry, fraction=min(1.0, scenario.restart_error * entry.fraction))
                    for entry in self._law.entries
                ],
            )
            self._law.update(now=now, capacity=scenario.capacity)
        middle = time + scenario.tick / 2
        people = self._people.value(middle) * scenario.capacity
        arrivals = poisson(people * scenario.tick, self._people_draw)
        self._law.arrived(None, arrivals)
        demand = people
        for population in self._populations:
            population.fetch(self._law, now=now)
            population.send(self._law, time=time, tick=scenario.tick)
            arrivals += population.sent
            demand += population.demand(middle)
        capacity = self._changes.value(middle) * scenario.capacity
        self._law.update(now=now + scenario.tick, capacity=self._measured(capacity))
        self._measure(time, capacity, demand, arrivals / scenario.tick)

    def metrics(self) -> dict[str, float | list[float]]:
        """Return the means after the warm-up."""
        return {
            name: sum(values[self._scenario.warmup :]) / len(values[self._scenario.warmup :])
            for name, values in self.values.items()
        }

    def _measured(self, capacity: float) -> float:
        """Return the capacity as the law measures it."""
        error = self._scenario.capacity_error
        return capacity * max(0.0, 1.0 + error * normal(self._capacity_draw)) if error else capacity

    def _measure(self, time: float, capacity: float, demand: float, load: float) -> None:
        """Record a tick; all signals are multiples of the present capacity, but `served`, a part of what could be."""
        self.times.append(time)
        goodput, possible = min(load, capacity), min(demand, capacity)
        measured = {
            "demand": demand / capacity,
            "load": load / capacity,
            "goodput": goodput / capacity,
            "served": goodput / possible if possible else 1.0,
        }
        for population in self._populations:
            measured[f"{population.settings.name}_load"] = population.sent / self._scenario.tick / capacity
        entries = self._law.entries
        for entry in entries:
            prefix = f"{entry.user_agent}_" if len(entries) > 1 else ""
            measured[f"{prefix}fraction"] = entry.wanted
        for name, value in measured.items():
            self.values.setdefault(name, []).append(value)
