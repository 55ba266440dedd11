"""The two simulations of anti-ddos-throttling.txt, section 6, with the real throttle: `attack` and `downtime`.

They follow the published model literally: an agent is asked once a tick, in the order of its number, and sends if its
last attempt is longer ago than its interval, which is drawn anew in each tick. A request that the throttle holds is an
attempt that failed. The server answers at the end of the tick.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from headgate.throttle import Policy, Throttle
from lab.chance import Chance, Draw, Purpose
from lab.results import Metrics, Run, mean_metrics

POLICIES: Final[Mapping[str, Policy | None]] = {"none": None, "draft": Policy.draft(), "chromium": Policy.chromium()}
"""Whether agents have a throttle, and with which numbers: the document's, or those that Chromium shipped."""

IGNORED: Final = "ignored"
"""The attack in which clients have the throttle with the numbers of the document, and attackers have none."""
START: Final = 2.0**30
"""The instant at which worlds begin, in seconds since 1970. Near it, the sums of short binary fractions are exact."""
URL: Final = "http://site.example/resource"
ATTACK_TICKS: Final = 361
CAPACITY: Final = 30
"""Requests that the attacked server answers in a tick of one second."""
COOLING: Final = 5
"""Ticks after an overload in which it answers 503 to every request."""
TICKS_OF_DOWNTIME: Final = 200


class Group(NamedTuple):
    """What agents have in common: seconds between requests, uniform within ± jitter, and of the first start."""

    interval: float
    jitter: float
    start: float


ATTACKER: Final = Group(interval=0.001, jitter=0.0, start=120.0)
CLIENT: Final = Group(interval=120.0, jitter=60.0, start=120.0)
AGENTS: Final = 50
"""Agents of each group."""


class Trial(NamedTuple):
    """A server that is down for some seconds, and the mean interval of the one agent that requests it."""

    downtime: float
    interval: float


TRIALS: Final = (
    Trial(10, 3),
    Trial(30, 7),
    Trial(300, 30),
    Trial(600, 20),
    Trial(1200, 15),
    Trial(1200, 50),
    Trial(1800, 120),
    Trial(1800, 300),
    Trial(2400, 420),
    Trial(2400, 120),
    Trial(2400, 15),
    Trial(3600, 420),
    Trial(3600, 120),
    Trial(3600, 15),
    Trial(4800, 1200),
    Trial(4800, 180),
    Trial(4800, 15),
    Trial(2700, 0.5),
)


class Agent:
    """One agent, and what became of its attempts."""

    def __init__(self, group: Group, policy: Policy | None, draw: Draw, jitter: Draw) -> None:
        self.answered = self.failed = self.blocked = 0
        self.perceived_downtime = 0.0
        """Seconds from the last success before a failure to the first one after it; 0 without one."""
        self.throttle = None if policy is None else Throttle(policy, draw=jitter)
        self._group = group
        self._draw = draw
        self._last_attempt = START + group.start * draw() - group.interval
        self._last_success = START
        self._is_failing = False

    def sends(self, now: float) -> bool:
        """Return whether the agent sends a request in this tick."""
        group = self._group
        interval = group.interval
        if group.jitter:
            interval += group.jitter * (2.0 * self._draw() - 1.0)
        if now - self._last_attempt <= interval:
            return False
        self._last_attempt = now
        if self.throttle is not None and self.throttle.release_time(URL, now=now) > now:
            self.blocked += 1
            self._is_failing = True
            return False
        return True

    def receive(self, status: int, now: float) -> None:
        """Take the response to the request."""
        if self.throttle is not None:
            self.throttle.response_received(URL, status, (), now=now)
        if status != 200:
            self.failed += 1
            self._is_failing = True
            return
        self.answered += 1
        if self._is_failing:
            self.perceived_downtime = now - self._last_success
        self._is_failing = False
        self._last_success = now


class Server:
    """Answers the requests of a tick; beyond its capacity with 503, and after that for some ticks all of them."""

    def __init__(self) -> None:
        self.load: list[int] = []
        """The requests of each tick."""
        self._cooling = 0

    def capacity(self, requests: int) -> int:
        """Take the requests of the next tick; return how many of them are answered with 200."""
        self.load.append(requests)
        served = 0 if self._cooling else CAPACITY
        if requests > CAPACITY:
            self._cooling = COOLING
        elif self._cooling:
            self._cooling -= 1
        return served


def run_attack(task: tuple[str, int]) -> Run:
    """Run the attack with a policy and a seed."""
    policy, seed = task
    chance, server = Chance(seed), Server()
    agents = {
        name: [_agent(group, _policy_of(name, policy), chance, first + index) for index in range(AGENTS)]
        for first, (name, group) in ((AGENTS, ("client", CLIENT)), (0, ("attacker", ATTACKER)))
    }
    for tick in range(ATTACK_TICKS):
        now = START + tick
        arrivals = [agent for agent in (*agents["attacker"], *agents["client"]) if agent.sends(now)]
        capacity = server.capacity(len(arrivals))
        for place, agent in enumerate(arrivals):
            agent.receive(200 if place < capacity else 503, now)
    metrics: Metrics = {
        "overloaded_ticks": float(sum(requests > CAPACITY for requests in server.load)),
        "max_requests": float(max(server.load)),
    }
    for name, group_agents in agents.items():
        answered, failed, blocked = (
            sum(getattr(agent, count) for agent in group_agents) for count in ("answered", "failed", "blocked")
        )
        attempts = answered + failed + blocked
        metrics[f"{name}_success"] = answered / attempts
        metrics[f"{name}_blocked"] = blocked / attempts
    return Run(policy, seed, metrics)


def _policy_of(group: str, policy: str) -> str:
    if policy != IGNORED:
        return policy
    return "none" if group == "attacker" else "draft"


def run_downtime(task: tuple[str, int]) -> Run:
    """Run all trials of downtime with a policy and a seed."""
    policy, seed = task
    chance = Chance(seed)
    downtimes = [perceived_downtime(trial, policy, chance, number) for number, trial in enumerate(TRIALS)]
    return Run(policy, seed, {"perceived_downtime": downtimes})


def perceived_downtime(trial: Trial, policy: str, chance: Chance, number: int) -> float:
    """Return the downtime that the agent of a trial perceives, as a share of the downtime; 0 if it perceives none.

    The run is two downtimes long, and the server is down strictly between 1/2 and 3/2 of a downtime. What the agent
    perceives is measured at the first success after a failure; the last such time counts.
    """
    downtime = trial.downtime
    agent = _agent(Group(trial.interval, jitter=trial.interval, start=downtime / 3), policy, chance, number)
    for tick in range(2 * TICKS_OF_DOWNTIME + 1):
        now = START + tick * downtime / TICKS_OF_DOWNTIME
        if agent.sends(now):
            is_down = START + downtime / 2 < now < START + downtime * 3 / 2
            agent.receive(503 if is_down else 200, now)
    return agent.perceived_downtime / downtime


def _agent(group: Group, policy: str, chance: Chance, number: int) -> Agent:
    behaviour, jitter = chance.stream(Purpose.BEHAVIOUR, number), chance.stream(Purpose.POLICY, number)
    return Agent(group, POLICIES[policy], behaviour, jitter)


def summarise_attack(runs: Mapping[str, Sequence[Run]]) -> dict[str, Metrics]:
    """Return the means, and in how many seeds a policy is better than "none" in all four directions.

    `seeds_in_order` counts the seeds with fewer overloaded ticks, a lower maximum, a higher success of clients, and
    clients that are blocked less than attackers.
    """
    metrics = {policy: mean_metrics(of_policy) for policy, of_policy in runs.items()}
    for policy, of_policy in runs.items():
        pairs = zip(of_policy, runs["none"], strict=True)
        metrics[policy]["seeds_in_order"] = float(sum(_is_in_order(run, without) for run, without in pairs))
    return metrics


def _is_in_order(run: Run, without: Run) -> bool:
    def number(of: Run, name: str) -> float:
        value = of.metrics[name]
        assert isinstance(value, float)
        return value

    return (
        number(run, "overloaded_ticks") < number(without, "overloaded_ticks")
        and number(run, "max_requests") < number(without, "max_requests")
        and number(run, "client_success") > number(without, "client_success")
        and number(run, "client_blocked") < number(run, "attacker_blocked")
    )


def summarise_downtime(runs: Mapping[str, Sequence[Run]]) -> dict[str, Metrics]:
    """Return by how much a policy lengthens the downtime that agents perceive: in the sum, and in each trial.

    The means over the seeds are divided by those with "none".
    """
    means = {policy: _perceived(mean_metrics(of_policy)) for policy, of_policy in runs.items()}
    without = means["none"]
    return {
        policy: {
            "perceived_downtime_ratio": math.fsum(values) / math.fsum(without),
            "trials": [value / reference for value, reference in zip(values, without, strict=True)],
        }
        for policy, values in means.items()
    }


def _perceived(metrics: Metrics) -> list[float]:
    value = metrics["perceived_downtime"]
    assert isinstance(value, list)
    return value


class Simulation(NamedTuple):
    """One of the two simulations."""

    description: str
    policies: Sequence[str]
    run: Callable[[tuple[str, int]], Run]
    """Run it with a policy and a seed."""
    summarise: Callable[[Mapping[str, Sequence[Run]]], dict[str, Metrics]]
    """Take the runs of each policy, in the order of the seeds; return the metrics of each."""


SIMULATIONS: Final[Mapping[str, Simulation]] = {
    "attack": Simulation(
        "Fifty attackers and fifty clients request a server that fails while it is overloaded.",
        (*POLICIES, IGNORED),
        run_attack,
        summarise_attack,
    ),
    "downtime": Simulation(
        "How long a server that is down for some time seems to be down to an agent, in 18 trials.",
        tuple(POLICIES),
        run_downtime,
        summarise_downtime,
    ),
}
"""The simulations by name."""
