"""The values of a scenario file that every world has: description, seeds, policies, expectations; and their limits.

Each world adds its own keys in a subclass, in a module of its own: `lab/ticks/settings.py` has
`class TickScenario(Scenario, frozen=True, kw_only=True)`, `lab/events/settings.py` has `EventScenario`. A field is a
key of the file; a tuple of structs (`class Agents(Section, frozen=True, kw_only=True)`) is a list of tables,
`[[agents]]`. The type of a field states its limits: use the types below, so that no file makes a run endless or larger
than memory, and so that NaN and infinity are errors. What types cannot state (sums, names that refer to each other) is
checked by `check`, which a subclass extends. `lab/scenario_file.py` reads the files.
"""

import math
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from headgate.errors import ConfigurationError
from headgate.lab.ranges import METRIC, Expectation, Statistic

MAX_SEEDS: Final = 100_000
MAX_POLICIES: Final = 32
MAX_RUNS: Final = 400_000
"""Policies times seeds; the metrics of all runs are kept until the end."""
MAX_TICKS: Final = 1_000_000
MAX_TICK_AGENTS: Final = 100_000
"""Agents of the discrete-time world with the real cores; more are for the kernel."""
MAX_AGENTS: Final = 2_000_000
MAX_AGENT_TICKS: Final = 2_000_000_000
"""Agents times ticks of one run."""
MAX_SIMULATED_SECONDS: Final = 10_000_000.0
"""About four months."""
MAX_EVENTS: Final = 100_000_000
"""Events of one run of the event-driven world; a run that exceeds it is an error."""

Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A seed of all chance in one run."""
SeedCount = Annotated[int, Meta(ge=1, le=MAX_SEEDS)]
"""N stands for the seeds 0 to N-1."""
SeedList = Annotated[tuple[Seed, ...], Meta(min_length=1, max_length=MAX_SEEDS)]
"""The seeds themselves."""
Name = Annotated[str, Meta(min_length=1, max_length=100)]
"""The name of an agent group, an origin, a policy or a signal."""
Ticks = Annotated[int, Meta(ge=1, le=MAX_TICKS)]
"""A number of ticks."""
TicksOrZero = Annotated[int, Meta(ge=0, le=MAX_TICKS)]
"""A number of ticks, zero for none."""
AgentCount = Annotated[int, Meta(ge=0, le=MAX_AGENTS)]
"""A number of agents."""
Seconds = Annotated[float, Meta(ge=1e-6, le=MAX_SIMULATED_SECONDS)]
"""A duration of more than zero."""
SecondsOrZero = Annotated[float, Meta(ge=0.0, le=MAX_SIMULATED_SECONDS)]
"""A duration."""
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
"""A probability or a share of something."""
Rate = Annotated[float, Meta(ge=1e-6, le=1e9)]
"""Requests per second (or per tick) of more than zero."""
RateOrZero = Annotated[float, Meta(ge=0.0, le=1e9)]
"""Requests per second (or per tick)."""
Factor = Annotated[float, Meta(ge=1e-6, le=1e6)]
"""A multiple of something, such as the load as a multiple of the capacity."""
Points = Annotated[tuple[tuple[SecondsOrZero, RateOrZero], ...], Meta(min_length=1, max_length=10_000)]
"""[seconds, value] in ascending order of time, with straight lines between them; two with one time are a step."""
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""A finite number."""


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a scenario file."""


class ExpectSection(Section, frozen=True, kw_only=True):
    """An allowed range, `[[expect]]`: what is measured, when, and between which values it lies."""

    signal: Name
    """A series' name, or a metric's."""
    statistic: Statistic = METRIC
    """`value` is for metrics, all others for series."""
    start: SecondsOrZero | None = field(default=None, name="from")
    """Seconds since the start of the world; samples before do not count."""
    until: Seconds | None = None
    """Seconds since the start of the world; samples from it on do not count."""
    at_least: Number | None = None
    """The lowest value in the range."""
    at_most: Number | None = None
    """The highest value in the range."""
    target: Number | None = None
    """The value that the signal settles at, or is not to exceed."""
    tolerance: Number | None = None
    """The distance from `target` within which the signal counts as settled."""
    policies: tuple[Name, ...] = ()
    """The policies that the range is for; by default all but the `control`, which must leave it."""

    def expectation(self) -> Expectation:
        """Return what is measured and compared; raises `ConfigurationError` for keys that do not go together."""
        return Expectation(
            signal=self.signal,
            statistic=self.statistic,
            start=-math.inf if self.start is None else self.start,
            end=math.inf if self.until is None else self.until,
            at_least=-math.inf if self.at_least is None else self.at_least,
            at_most=math.inf if self.at_most is None else self.at_most,
            target=self.target,
            tolerance=self.tolerance,
        )


class Scenario(Section, frozen=True, kw_only=True):
    """What every scenario file has. `name` and `folder` are set by the reader, not by the file."""

    description: Annotated[str, Meta(min_length=1, max_length=1_000)]
    """One sentence."""
    world: Literal["ticks", "events", "rates"]
    """Discrete time, event-driven, or rates of requests over hours."""
    seeds: SeedCount | SeedList = 100
    """A number, N for the seeds 0 to N-1, or a list of seeds."""
    policies: Annotated[tuple[Name, ...], Meta(max_length=MAX_POLICIES)] = ()
    """The policies to compare: names, or `module:Class` or `file.py:Class` of your own."""
    law: str = ""
    """In files of a suite, in place of `policies`: the control law."""
    control: str = ""
    """The policy or law that must leave the ranges; it is run as well."""
    summary: Literal["mean", "attack", "downtime"] = "mean"
    """How the runs of all seeds become the metrics of a policy."""
    expect: Annotated[tuple[ExpectSection, ...], Meta(max_length=100)] = ()
    """The allowed ranges."""
    name: str = ""
    """The name of the file without `.toml`."""
    folder: str = ""
    """The folder of the file, where `file.py:Class` is looked for."""

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds, in the order of the runs."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def compared(self) -> tuple[str, ...]:
        """The policies that are run: `policies` or the `law`, then the `control` if it is not among them."""
        names = self.policies or (self.law,)
        return names if not self.control or self.control in names else (*names, self.control)

    def expectations_of(self, policy: str) -> tuple[Expectation, ...]:
        """Return the ranges that a policy is compared with; the control with those of all other policies."""
        return tuple(
            section.expectation()
            for section in self.expect
            if not section.policies or policy in (*section.policies, self.control)
        )

    def check(self) -> None:
        """Raise `ConfigurationError`, which begins with the key, for values that do not go together."""
        if bool(self.policies) == bool(self.law):
            raise ConfigurationError("policies: expected a list of policies, or in a suite a `law`; set one of the two")
        if self.summary != "mean" and self.world != "ticks":
            raise ConfigurationError(f"summary: {self.summary!r} is for worlds in discrete time; leave it out")
        for key, names in (("policies", self.policies), ("seeds", self.seed_list)):
            if len(set(names)) < len(names):
                raise ConfigurationError(f"{key}: a value is listed twice; list each once")
        runs = len(self.compared) * len(self.seed_list)
        if runs > MAX_RUNS:
            raise ConfigurationError(
                f"seeds: {runs:,} policies times seeds are more than {MAX_RUNS:,}; use fewer seeds"
            )
        for index, section in enumerate(self.expect):
            if missing := [name for name in section.policies if name not in self.compared]:
                raise ConfigurationError(f"expect[{index}].policies: {missing[0]!r} is not run by this scenario")
            try:
                section.expectation()
            except ConfigurationError as error:
                raise ConfigurationError(f"expect[{index}]: {error}") from None


SET_BY_READER: Final = frozenset({"name", "folder"})
"""Fields of a scenario that are not keys of its file."""
