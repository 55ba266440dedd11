"""The keys of a scenario in the world of rates: classes of agents, people, a capacity, and the settings of laws."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from headgate.advice.identity import EVERY_AGENT
from headgate.advice_control import LawSettings
from headgate.errors import fail_if, naming
from lab.profile import Profile
from lab.ranges import Section
from lab.rates.laws import LAWS
from lab.scenario import (
    Factor,
    Name,
    Points,
    Rate,
    RateOrZero,
    Scenario,
    Seconds,
    Share,
)

MAX_AGENT_TICKS_OF_RATES: Final = 100_000_000
"""Agents times ticks: each is drawn."""


class Agents(Section, frozen=True, kw_only=True):
    """A group of agents, `[[agents]]`."""

    name: Name = "agents"
    """The name of the group in signals."""
    entry: Name = EVERY_AGENT
    """The name of the entry that the agents obey: their class. Several groups may have one class."""
    count: Annotated[int, Meta(ge=1, le=100_000)]
    """The number of agents."""
    demand: RateOrZero | Points
    """Requests without advice, as a multiple of the capacity at the start: a number, or points over time."""
    repeat: Seconds | None = None
    """The points of `demand` repeat with this period."""
    zipf: Annotated[float, Meta(ge=0.0, le=3.0)] = 0.0
    """Agent k has a part of the demand in proportion to 1/k to this power; 0 for agents of one size."""
    fetches: Literal["staggered", "synchronised", "never"] = "staggered"
    """Each agent fetches once a max-age: at a time of its own, all at once, or never."""
    lost: Share = 0.0
    """The share of fetches that fail. The agent fetches again after a minute."""
    after_loss: Literal["previous", "nothing"] = "previous"
    """What an agent obeys after a lost fetch: what it fetched before, as the agents of headgate do, or nothing."""
    obeys: bool = True
    """Whether the agents do what they fetch."""
    response: Factor = 1.0
    """Agents send this many times what was asked, up to their demand; other than 1, the estimate of it is wrong."""

    def profile(self) -> Profile:
        """Return the demand over time."""
        return profile(self.demand, self.repeat)


def profile(value: float | Points, repeat: float | None = None) -> Profile:
    """Return a value over time."""
    points = value if isinstance(value, tuple) else ((0.0, value),)
    return Profile(points) if repeat is None else Profile(points, repeat)


class RateScenario(Scenario, frozen=True, kw_only=True):
    """A scenario in the world of rates."""

    capacity: Rate
    """Requests per second that the origin serves, at the start."""
    agents: Annotated[tuple[Agents, ...], Meta(min_length=1, max_length=100)]
    tick: Seconds = 10.0
    """The length of a tick."""
    ticks: Annotated[int, Meta(ge=1, le=1_000_000)] = 720
    """The number of ticks."""
    warmup: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """The ticks at the start that the metrics leave out."""
    changes: Points = ((0.0, 1.0),)
    """The capacity over time, as a multiple of that at the start."""
    people: RateOrZero | Points = 0.0
    """Requests of people, who have no advice, as a multiple of the capacity at the start."""
    capacity_error: Annotated[float, Meta(ge=0.0, le=0.5)] = 0.0
    """Standard deviation of the capacity that the law is told, as a part of it: the noise of a measured capacity."""
    restart: Seconds | None = None
    """When the law is restarted with the entries that it has published, and nothing else."""
    restart_error: Factor = 1.0
    """The fractions of these entries are this many times those that were published, and at most 1."""
    max_age: Seconds = LawSettings().max_age
    """Seconds for which agents obey what they fetched."""

    def law_settings(self) -> LawSettings:
        """Return the settings of laws."""
        return LawSettings(tuple(dict.fromkeys(agents.entry for agents in self.agents)), max_age=self.max_age)

    def check(self) -> None:
        """Raise `ConfigurationError` for values that do not go together."""
        super().check()
        for name in self.compared:
            fail_if(name not in LAWS, f"unknown law {name!r}; expected one of {', '.join(LAWS)}")
        fail_if(self.warmup >= self.ticks, f"warmup: must be less than ticks, {self.ticks}, got {self.warmup}")
        period = self.law_settings().period
        fail_if(self.tick > period, f"tick: must be at most a tenth of max_age, {period:g} s, got {self.tick:g}")
        size = sum(agents.count for agents in self.agents) * self.ticks
        fail_if(
            size > MAX_AGENT_TICKS_OF_RATES,
            f"{size:,} agents times ticks are more than {MAX_AGENT_TICKS_OF_RATES:,}; use fewer of one",
        )
        fail_if(
            len({agents.name for agents in self.agents}) < len(self.agents),
            "agents: two groups have the same name; give each its own",
        )
        for agents in self.agents:
            _check_profile(f"agents.{agents.name}.demand", agents.demand, agents.repeat)
        _check_profile("changes", self.changes)
        _check_profile("people", self.people)


def _check_profile(key: str, value: float | Points, repeat: float | None = None) -> None:
    with naming(key):
        profile(value, repeat)
