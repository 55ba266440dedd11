"""The keys of a scenario in discrete time: groups of agents, origins, and trials of downtime.

Rates and capacities are requests per second, durations are seconds.
"""

import math
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from headgate.errors import ConfigurationError, RuleError
from headgate.lab.policies.catalogue import find_policy
from headgate.lab.scenario import (
    MAX_AGENT_TICKS,
    MAX_TICK_AGENTS,
    MAX_TICKS,
    AgentCount,
    Factor,
    Name,
    Rate,
    Scenario,
    Seconds,
    SecondsOrZero,
    Section,
    Share,
    Ticks,
    TicksOrZero,
)
from headgate.limit import Rule

MAX_DELAY: Final = 60.0
"""Seconds; the longest network delay in one direction."""
HostLabel = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_-]{0,62}$")]
"""A name that can be part of a host name."""
_OF_ATTACK: Final = frozenset({"attacker", "client"})
"""The groups that the summary of an attack compares."""


class AgentGroup(Section, frozen=True, kw_only=True, tag_field="kind"):
    """Agents of one kind, `[[agents]]`."""

    automated: ClassVar[bool] = True
    """Whether programs decide when to send."""

    name: Name
    """Metrics of the group begin with it."""
    count: AgentCount
    """The number of agents."""
    origins: tuple[Name, ...] = ()
    """The origins that the agents request, each chosen with the same probability; by default the first one."""
    obeys: bool = True
    """Whether the agents follow the policy; otherwise they send as with `none`."""

    @property
    def size(self) -> int:
        """The number of agents that send, each at most one request at a time."""
        return self.count

    @property
    def sharing(self) -> int:
        """How many consecutive agents share one policy and one address."""
        return 1

    @property
    def offered(self) -> float:
        """Requests per second that the agents send if all are answered at once; 0 if that is not fixed."""
        return 0.0


class Requesters(AgentGroup, frozen=True, kw_only=True, tag="requester"):
    """Agents that are asked in every tick, and send if their last attempt is longer ago than their interval.

    The interval is drawn anew in every tick. Also of the attempts that their policy refuses, the last one counts.
    """

    interval: Seconds
    """The mean of the interval."""
    jitter: SecondsOrZero = 0.0
    """The interval is uniform in `interval` ± `jitter`."""
    start: SecondsOrZero = 0.0
    """The last attempt before the world begins is `interval` before an instant in the first `start` seconds."""

    @property
    def offered(self) -> float:
        """Requests per second, if every agent always has the mean interval."""
        return self.count / self.interval


class Pollers(AgentGroup, frozen=True, kw_only=True, tag="poller"):
    """Programs that send a request, wait for the response, wait for the interval, and send the next one."""

    interval: Seconds
    """Seconds from a response to the next request; also after a refusal or a failure, unless the policy says more."""

    @property
    def offered(self) -> float:
        """Requests per second, if each is answered at once."""
        return self.count / self.interval


class Interactive(AgentGroup, frozen=True, kw_only=True, tag="interactive"):
    """People who visit a page, try again if it fails, and give up after a deadline."""

    automated = False

    think: Seconds
    """The mean of the seconds between two visits, which are exponentially distributed."""
    deadline: Seconds = 30.0
    """Seconds after the begin of a visit until its user gives up."""
    retry: tuple[SecondsOrZero, SecondsOrZero] = (10.0, 20.0)
    """Shortest and longest time until a user tries again after a failure; uniform between them."""

    @property
    def offered(self) -> float:
        """Visits per second, if each is answered at once."""
        return self.count / self.think


class Crawlers(AgentGroup, frozen=True, kw_only=True, tag="crawler"):
    """Programs that fetch a number of pages, over several connections, and each page until it is answered."""

    pages: Annotated[int, Meta(ge=1, le=1_000_000)]
    """The pages that each crawler fetches."""
    connections: Annotated[int, Meta(ge=1, le=1_000)] = 1
    """The requests that a crawler has under way at most; all obey one policy."""
    interval: SecondsOrZero = 0.0
    """Seconds from a response to the next request of the same connection; at least one tick."""
    start: SecondsOrZero = 0.0
    """The connections begin at random instants in the first `start` seconds."""
    retry: Seconds = 10.0
    """Seconds after which a connection tries again after a failure, unless the policy says otherwise."""

    @property
    def size(self) -> int:
        """The connections of all crawlers."""
        return self.count * self.connections

    @property
    def sharing(self) -> int:
        """The connections of one crawler."""
        return self.connections


class Prefetchers(AgentGroup, frozen=True, kw_only=True, tag="prefetch"):
    """Browsers that prefetch pages through proxies; what is refused or fails is not tried again."""

    think: Seconds
    """The mean of the seconds from one prefetch to the next of a browser, which are exponentially distributed."""
    proxies: Annotated[int, Meta(ge=1, le=100_000)] = 1
    """The proxies: the browsers behind one share its policy and its address."""

    @property
    def sharing(self) -> int:
        """The browsers behind one proxy; behind the last one there may be fewer."""
        return max(1, math.ceil(self.count / self.proxies))

    @property
    def offered(self) -> float:
        """Prefetches per second, if each is answered at once."""
        return self.count / self.think


Group: TypeAlias = Requesters | Pollers | Interactive | Crawlers | Prefetchers
"""A group of any kind."""


class Origin(Section, frozen=True, kw_only=True, tag_field="kind"):
    """A server, `[[origins]]`."""

    name: HostLabel = "site"
    """Part of its URL. Metrics begin with it if there are several origins."""
    capacity: Rate
    """Requests that it serves in a second."""
    delay: Annotated[float, Meta(ge=0.0, le=MAX_DELAY)] = 0.0
    """Seconds that a request takes to the origin, and the response back; rounded up to ticks."""
    errors: Share | None = None
    """The share of the requests that it serves in vain; by default that of the scenario."""
    outages: Annotated[tuple[tuple[SecondsOrZero, SecondsOrZero], ...], Meta(max_length=1_000)] = ()
    """Pairs of instants, in seconds since the start, strictly between which the server is down."""
    limit: str = ""
    """A rule for each client, such as "1/s burst 5", which a gate before the server applies; none by default."""

    @property
    def rule(self) -> Rule | None:
        """The parsed `limit`; None without one. Raises `RuleError`."""
        return Rule.parse(self.limit) if self.limit else None


class Cooling(Origin, frozen=True, kw_only=True, tag="cooling"):
    """A server that fails while it is overloaded, and for some ticks after.

    It answers 503 to the requests of a tick beyond its capacity. After a tick with more requests than that, it answers
    503 to all requests of the next `cooling` ticks.
    """

    cooling: TicksOrZero = 5
    """Ticks in which it answers 503 after any overload."""


class Metered(Origin, frozen=True, kw_only=True, tag="metered"):
    """A server that spends a part of its capacity on refusals.

    If the capacity does not suffice for all requests of a tick, it serves as many as it can while it refuses the others
    with 503. Which ones it serves is random.
    """

    refusal: Share = 0.25
    """What a refusal costs, as a share of a request that is served."""


class Queue(Origin, frozen=True, kw_only=True, tag="queue"):
    """A server that serves requests in the order of their arrival, and keeps those that have to wait in a queue.

    It answers 503 to a request that finds the queue full, and, when it goes down, to all in the queue.
    """

    queue: Annotated[int, Meta(ge=0, le=1_000_000)]
    """The requests that wait at most."""


class Trial(Section, frozen=True, kw_only=True):
    """One server that is down for some time, and one agent, `[[trials]]`: see `headgate.lab.ticks.downtime`."""

    downtime: Seconds
    """Seconds that the server is down."""
    interval: Seconds
    """The mean of the agent's interval."""


class TickScenario(Scenario, frozen=True, kw_only=True):
    """A scenario in discrete time: agents and origins, or trials of downtime."""

    tick: Seconds = 1.0
    """The length of a tick."""
    ticks: Ticks = 1
    """The number of ticks."""
    warmup: TicksOrZero = 0
    """The ticks at the start that are not measured."""
    agents: Annotated[tuple[Group, ...], Meta(max_length=100)] = ()
    """The groups of agents."""
    origins: Annotated[tuple[Cooling | Metered | Queue, ...], Meta(max_length=100)] = ()
    """The servers."""
    load: Factor | None = None
    """The offered load as a multiple of the first origin's capacity: sets that capacity."""
    errors: Share = 0.0
    """The share of the requests that a server serves in vain: it answers 500."""
    outage: SecondsOrZero = 0.0
    """Seconds that all servers are down, from the middle of the measured time on, by which the run is longer."""
    trials: Annotated[tuple[Trial, ...], Meta(max_length=1_000)] = ()
    """Trials of downtime, in place of agents and origins."""

    @property
    def capacities(self) -> tuple[float, ...]:
        """The capacities of the origins, as `load` determines them."""
        given = [origin.capacity for origin in self.origins]
        if self.load is not None:
            first = self.origins[0].name
            groups = (group for group in self.agents if not group.origins or first in group.origins)
            given[0] = sum(group.offered / max(len(group.origins), 1) for group in groups) / self.load
        return tuple(given)

    @property
    def outage_ticks(self) -> tuple[int, int]:
        """The first tick of the outage, and the first one after it."""
        start = self.warmup + (self.ticks - self.warmup) // 2
        return start, start + round(self.outage / self.tick)

    @property
    def total_ticks(self) -> int:
        """The ticks of a run, those of the outage included."""
        start, end = self.outage_ticks
        return self.ticks + end - start

    def check(self) -> None:
        """Raise `ConfigurationError` for values that do not go together."""
        super().check()
        for policy in self.compared:
            find_policy(policy, self.folder)
        self._check_summary()
        if self.trials:
            if self.agents or self.origins:
                raise ConfigurationError("trials: a scenario has trials, or agents and origins; remove one of the two")
            return
        if not self.agents or not self.origins:
            raise ConfigurationError("expected at least one [[agents]] and one [[origins]], or [[trials]]")
        if self.warmup >= self.ticks:
            raise ConfigurationError(f"warmup: must be less than ticks, {self.ticks}, got {self.warmup}")
        self._check_tables()
        if self.load is not None and not self.capacities[0]:
            raise ConfigurationError("load: the first origin is offered no load")
        self._check_size()

    def _check_size(self) -> None:
        """Bound the time and the memory that a run takes."""
        if self.total_ticks > MAX_TICKS:
            raise ConfigurationError(f"outage: {self.total_ticks:,} ticks with it are more than {MAX_TICKS:,}")
        size = sum(group.size for group in self.agents) * self.total_ticks
        if size > MAX_AGENT_TICKS:
            raise ConfigurationError(f"{size:,} agents times ticks are more than {MAX_AGENT_TICKS:,}; use fewer of one")
        for group in self.agents:
            objects = group.size * max(len(group.origins), 1)
            if objects > max(group.count, MAX_TICK_AGENTS):
                raise ConfigurationError(
                    f"agents.{group.name}: {objects:,} connections times origins are more than {MAX_TICK_AGENTS:,}"
                )

    def _check_summary(self) -> None:
        if self.summary == "downtime" and not self.trials:
            raise ConfigurationError("summary: 'downtime' is for [[trials]]; leave it out")
        groups = {group.name for group in self.agents if isinstance(group, Requesters)}
        is_attack = groups >= _OF_ATTACK and len(self.origins) == 1 and isinstance(self.origins[0], Cooling)
        if self.summary == "attack" and not is_attack:
            raise ConfigurationError(
                "summary: 'attack' is for requesters named 'attacker' and 'client' and one cooling origin; leave it out"
            )

    def _check_tables(self) -> None:
        for key, names in (("agents", self.agents), ("origins", self.origins)):
            if len({one.name for one in names}) < len(names):
                raise ConfigurationError(f"{key}: two have the same name; give each its own")
        for origin in self.origins:
            for start, end in origin.outages:
                if start >= end:
                    raise ConfigurationError(f"origins.{origin.name}.outages: {start:g} is not before {end:g}")
            try:
                _ = origin.rule
            except RuleError as error:
                raise ConfigurationError(f"origins.{origin.name}.limit: {error}") from None
        self._check_groups({origin.name for origin in self.origins})

    def _check_groups(self, known: set[str]) -> None:
        for group in self.agents:
            if isinstance(group, Interactive) and group.retry[0] > group.retry[1]:
                raise ConfigurationError(f"agents.{group.name}.retry: expected [shortest, longest], got {group.retry}")
            for name in group.origins:
                if name not in known:
                    raise ConfigurationError(
                        f"agents.{group.name}.origins: no origin {name!r}; expected one of {', '.join(sorted(known))}"
                    )
