"""The tables `ablation` and `sensitivity`: what each mechanism adds under a load that lasts, with the real cores.

`SERVERS` servers with exponential service times are asked by people, for a part of the capacity, and by agents that
poll at random instants. Nothing waits at an agent: a poll that is held or not selected is not sent. People
and agents give up after `TIMEOUT`. Without a gate, the origin has the same queue, in the order of arrival, and rejects
without `Retry-After` when it is full. Advice is kept for ten minutes, the least max-age; half of a run is warm-up.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple, TypeVar, cast

from headgate.advice_control import HistoryLaw, LawSettings
from headgate.throttle import Throttle
from lab.chance import Chance, Draw, Purpose
from lab.events.catalogue import make_law
from lab.events.clients import OpenLoad
from lab.events.gate import Gate
from lab.events.meter import Meter
from lab.events.request import Answer
from lab.events.service import Service
from lab.events.settings import Load, Station
from lab.events.timeline import Timeline
from lab.report import aligned
from lab.results import Metrics, Run, mean_metrics
from lab.runner import map_tasks

Client = TypeVar("Client", bound="People")

SERVERS, SERVICE, QUEUE, TIMEOUT = 10, 1.0, 20, 10.0
CAPACITY: Final = SERVERS / SERVICE
"""Requests per second."""
PEOPLE: Final = 0.3
"""Requests of people, as a part of the capacity."""
AGENTS: Final = 50
SECONDS: Final = 2_400.0
START: Final = 2.0**30
"""Added to instants for the throttle and the advice: seconds since 1970."""
URL: Final = "http://site.example/resource"


class Setup(NamedTuple):
    """What one run has: a gate that `Retry-After` comes from, and what the agents obey."""

    load: float = 4.0
    """Requests of people and agents together, as a multiple of the capacity, if all were sent."""
    refusal: float = 0.25
    """What a refusal costs the origin, as a part of an answer."""
    gate: bool = True
    """Whether the concurrency limit of the product is before the origin; it is told the number of servers."""
    retry_after: bool = True
    """Whether agents obey it; likewise `throttle` and `advice`. The advice is told the capacity."""
    throttle: bool = True
    advice: bool = True
    told: float = 1.0
    """The number of servers and the capacity that are told, as multiples of the true ones."""
    obedient: float = 1.0
    """The part of the agents that obey anything."""
    greedy: float = 1.0
    """How many times its demand the first agent asks for."""
    seconds: float = SECONDS


NOTHING: Final[dict[str, Any]] = {"retry_after": False, "throttle": False, "advice": False}
"""What an agent obeys that obeys nothing."""
MECHANISMS: Final[Mapping[str, dict[str, Any]]] = {
    "nothing": NOTHING | {"gate": False},
    "throttle": NOTHING | {"gate": False, "throttle": True},
    "advice": NOTHING | {"gate": False, "advice": True},
    "gate, not obeyed": NOTHING,
    "gate + Retry-After": NOTHING | {"retry_after": True},
    "gate + Retry-After + throttle": {"advice": False},
    "gate + Retry-After + advice": {"throttle": False},
    "all": {},
}
REFUSALS, LOADS = (0.01, 0.25), (2.0, 4.0, 10.0)
METRICS: Final = ("goodput", "people", "agents")
COMPARED: Final = ("gate + Retry-After", "gate + Retry-After + advice", "all")
WRONG: Final = {
    "told": (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3),
    "obedient": (0.0, 0.25, 0.5, 0.75, 1.0),
    "greedy": (1.0, 10.0, 100.0),
}
"""The values of each setting that is varied."""


class People(OpenLoad):
    """Clients that obey nothing, and that a gate serves first."""

    agent_class: str | None = None
    advice: HistoryLaw

    def _send(self) -> None:
        self.advice.arrived(self.agent_class)
        super()._send()


class Agent(People):
    """An agent that polls, and what became of its polls after the warm-up."""

    agent_class = "*"

    def obey(self, setup: Setup, jitter: Draw) -> None:
        """Obey what the setup says, from now on."""
        self.wanted = self.answered = 0
        self.obeys = setup
        self._release, self._fraction = 0.0, 1.0
        self._throttle = Throttle(draw=jitter) if setup.throttle else None
        if setup.advice:
            self._timeline.schedule(LawSettings().max_age * jitter(), self._fetch)

    def _fetch(self, _: None) -> None:
        self._fraction = self.advice.entries[0].wanted
        self._timeline.schedule(self._timeline.now + LawSettings().max_age, self._fetch)

    def _send(self) -> None:
        now, release = self._timeline.now, self._release
        self.wanted += now >= self.obeys.seconds / 2
        if self._throttle is not None:
            release = max(release, self._throttle.release_time(URL, now=START + now) - START)
        if release <= now and (self._fraction == 1.0 or self._draw() < self._fraction):
            super()._send()

    def _continue(self, answer: Answer, retry_after: float) -> None:
        now = self._timeline.now
        self.answered += answer is Answer.SERVED and now >= self.obeys.seconds / 2
        if self.obeys.retry_after:
            self._release = max(self._release, now + retry_after)
        if self._throttle is not None and answer is not Answer.LATE:
            status = 200 if answer is Answer.SERVED else 503
            self._throttle.response_received(URL, status, (), now=START + now)


def run(task: tuple[Setup, int]) -> Run:
    """Run a setup with a seed."""
    setup, seed = task
    chance, timeline, advice = Chance(seed), Timeline(), HistoryLaw(LawSettings())
    meter = Meter(["people"], warmup=setup.seconds / 2, record=False)
    name, servers = ("concurrency", "max") if setup.gate else ("fixed", "limit")
    law = make_law(name, {servers: round(SERVERS * setup.told), "queue": QUEUE}, chance.stream(Purpose.GATE))
    station = Station(servers=SERVERS, service=Service(kind="exponential", mean=SERVICE), refusal_cost=setup.refusal)
    gate = Gate(timeline, law, station, chance.stream(Purpose.ORIGIN), meter)

    def client(kind: type[Client], load: Load, number: int) -> Client:
        made = kind(load, timeline, gate, meter, chance.stream(Purpose.BEHAVIOUR, number))
        made.advice = advice
        made.begin(CAPACITY)
        return made

    client(People, Load(name="people", load=PEOPLE, timeout=TIMEOUT), AGENTS)
    agents = []
    for number in range(AGENTS):
        rate = (setup.load - PEOPLE) * CAPACITY / AGENTS * (setup.greedy if number == 0 else 1.0)
        load = Load(name=f"agent {number}", rate=rate, timeout=TIMEOUT, priority="automated")
        agents.append(client(Agent, load, number))
        obeys = setup if number < setup.obedient * AGENTS else setup._replace(**NOTHING)
        agents[-1].obey(obeys, chance.stream(Purpose.POLICY, number))
    while (before := timeline.now) < setup.seconds:
        advice.update(now=START + before, capacity=CAPACITY * setup.told)
        timeline.run(before + LawSettings().period)
        gate.station.measure(meter.current, timeline.now - before)
        meter.sample(before, {})
    measured = meter.metrics()
    found: Metrics = {"goodput": measured["goodput"], "people": measured["success.people"]}
    found["agents"] = _success([agent for agent in agents[1:] if agent.obeys is setup])
    found["others"] = _success([agent for agent in agents if agent.obeys is not setup])
    found["first"] = 2.0 * agents[0].answered / (setup.seconds * CAPACITY)
    return Run("", seed, found)


def _success(agents: list[Agent]) -> float:
    return sum(one.answered for one in agents) / sum(one.wanted for one in agents) if agents else math.nan


def measure(setups: Iterable[Setup], seeds: int, workers: Executor | None) -> tuple[Mapping[Setup, Metrics], str]:
    """Return the mean metrics of each setup over some seeds, and a line with the largest standard errors."""
    each = list(dict.fromkeys(setups))
    runs = list(map_tasks(workers, run, [(setup, seed) for setup in each for seed in range(seeds)]))
    groups = [runs[index * seeds : (index + 1) * seeds] for index in range(len(each))]
    errors = (f"{name} {max(0.0, *(_error(name, of_setup) for of_setup in groups)):.3f}" for name in METRICS)
    means = dict(zip(each, map(mean_metrics, groups), strict=True))
    return means, f"standard error of a mean, at most: {', '.join(errors)}"


def _error(name: str, runs: Sequence[Run]) -> float:
    """Return the standard error of the mean of a metric: 0 for one run, NaN if it was not measured in all."""
    values, count = [cast("float", one.metrics[name]) for one in runs], len(runs)
    return math.dist(values, [sum(values) / count] * count) / math.sqrt(count * max(1, count - 1))


def ablation(seeds: int, workers: Executor | None, seconds: float) -> Iterator[str]:
    """Yield a table for each cost of a refusal: what is served with each of the mechanisms, at three loads."""
    setups = {
        (refusal, name, load): Setup(load=load, refusal=refusal, seconds=seconds, **changes)
        for refusal in REFUSALS
        for name, changes in MECHANISMS.items()
        for load in LOADS
    }
    found, errors = measure(setups.values(), seeds, workers)
    for refusal in REFUSALS:
        rows = [
            [f"a refusal costs {refusal}", *(f"{name} {load:g}x" for name in METRICS for load in LOADS)],
            *(
                [name, *(_cell(found[setups[refusal, name, load]][one]) for one in METRICS for load in LOADS)]
                for name in MECHANISMS
            ),
        ]
        yield from (*aligned(rows), "")
    yield errors


def sensitivity(seeds: int, workers: Executor | None, seconds: float) -> Iterator[str]:
    """Yield a table: three of the mechanisms at 4x, with a setting that is wrong."""
    setups = {
        f"{name}, {key} {value:g}": Setup(seconds=seconds, **MECHANISMS[name] | {key: value})
        for key, values in WRONG.items()
        for name in COMPARED
        for value in values
    }
    found, errors = measure(setups.values(), seeds, workers)
    metrics = (*METRICS, "others", "first")
    rows = [
        [f"a refusal costs {Setup().refusal}, {Setup().load:g}x", *metrics],
        *([name, *(_cell(found[setup][one]) for one in metrics)] for name, setup in setups.items()),
    ]
    yield from (*aligned(rows), errors)


def _cell(value: Any) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


TABLES: Final = {
    "ablation": ("What gate, Retry-After, throttle and advice add, alone and together.", ablation),
    "sensitivity": ("The same with a wrong capacity, with disobedience, and with greed.", sensitivity),
}
"""What each table is of, and its lines: of a number of seeds, worker processes, and the seconds of a run."""
