"""The keys of a scenario in the event-driven world."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from headgate.errors import ConfigurationError, fail_if, naming
from lab.events.catalogue import make_law
from lab.events.service import Service
from lab.profile import Profile
from lab.ranges import Section
from lab.scenario import (
    Factor,
    Name,
    Points,
    RateOrZero,
    Scenario,
    Seconds,
    SecondsOrZero,
    Share,
)

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
"""A number of clients, or of servers."""
MAX_SAMPLES = 1_000_000


class Station(Section, frozen=True, kw_only=True):
    """What serves the requests: at most `servers` at once, the others wait in the order of their start.

    Beyond the knee, each of the n requests in flight takes n/knee times as long, as if they shared a processor, and
    with a `degradation` d another 1 + d·(n/knee - 1) times: then the throughput falls, as with threads that wait for
    locks or memory that is swapped. The service time is fixed when the service begins.
    """

    service: Service = Service()
    servers: Count | None = None
    """The number of requests that are served at once; unlimited if there is only a knee."""
    knee: Count | None = None
    """The number of requests in flight beyond which the service time rises; never if there are only servers."""
    degradation: RateOrZero = 0.0
    refusal_cost: Share = 0.0
    """What a refusal costs, as a share of the mean service; refusals are served before requests."""

    @property
    def concurrency(self) -> int:
        """The number of requests in flight with which the station reaches its capacity."""
        return min(number for number in (self.servers, self.knee) if number is not None)

    @property
    def capacity(self) -> float:
        """Requests per second."""
        return self.concurrency / self.service.mean

    def check(self) -> None:
        """Raise `ConfigurationError` for a station without a limit."""
        fail_if(
            self.servers is None and self.knee is None,
            "station: set `servers`, `knee` or both; otherwise it has no capacity",
        )
        fail_if(self.degradation and self.knee is None, "station.degradation: it begins at a knee; set `knee`")


class Change(Section, frozen=True, kw_only=True):
    """A change of the station at an instant; what is not named has its value at the start."""

    at: SecondsOrZero
    capacity: Factor = 1.0
    """The servers and the knee, as a multiple of those at the start (at least 1)."""
    slowdown: Factor = 1.0
    """All service times, as a multiple of those at the start."""
    hang: SecondsOrZero = 0.0
    """If not zero, every request that begins takes this long and ends without an answer."""


class Load(Section, frozen=True, kw_only=True):
    """A group of clients: open (requests arrive whatever happens to others) or closed (each client waits)."""

    name: Name
    arrivals: Literal["poisson", "even", "closed"] = "poisson"
    load: RateOrZero | Points | None = None
    """Of open loads: requests as a multiple of the station's capacity at the start, a number or points over time."""
    rate: RateOrZero | Points | None = None
    """Instead of `load`: requests per second."""
    period: Seconds | None = None
    """The points repeat with this period."""
    clients: Count | None = None
    """Of closed loads: the number of clients."""
    think: SecondsOrZero = 1.0
    """Of closed loads: the mean time from an answer to the next request, exponentially distributed."""
    pause: SecondsOrZero = 1.0
    """Of closed loads: the mean time from a failure to the next request, uniform from half to one and a half of it."""
    begin: SecondsOrZero = 0.0
    """Of closed loads: seconds from the start until the first client begins."""
    spread: SecondsOrZero = 0.0
    """Of closed loads: seconds after `begin` in which each client begins at a random instant; 0 for a herd."""
    timeout: Seconds = 10.0
    """Seconds for which a client waits for an answer; a later answer is not counted."""
    priority: Name = "people"
    """The priority class, which laws may use."""
    service: Service | None = None
    """The service times of these requests; by default those of the station."""

    def cost(self, station: Station) -> float:
        """Return the work of a request, as a multiple of the station's mean service."""
        return 1.0 if self.service is None else self.service.mean / station.service.mean

    def profile(self, capacity: float) -> Profile:
        """Return the requests per second over time of an open load, for a station of this capacity for them."""
        given, factor = (self.load, capacity) if self.load is not None else (self.rate, 1.0)
        points = given if isinstance(given, tuple) else ((0.0, given or 0.0),)
        period = {} if self.period is None else {"period": self.period}
        return Profile([(time, value * factor) for time, value in points], **period)

    def check(self) -> None:
        """Raise `ConfigurationError` for keys that do not go together."""
        if self.arrivals == "closed":
            fail_if(
                self.clients is None or self.load is not None or self.rate is not None,
                f"loads.{self.name}: a closed load has `clients`, and neither `load` nor `rate`",
            )
            fail_if(
                not (self.think and self.pause),
                f"loads.{self.name}: `think` and `pause` must be positive, so that time passes",
            )
        elif self.clients is not None or (self.load is None) == (self.rate is None):
            raise ConfigurationError(f"loads.{self.name}: an open load has either `load` or `rate`, and no `clients`")
        with naming(f"loads.{self.name}"):
            self.profile(1.0)


class EventScenario(Scenario, frozen=True, kw_only=True):
    """A scenario of the event-driven world."""

    station: Station
    loads: Annotated[tuple[Load, ...], Meta(min_length=1, max_length=100)]
    seconds: Seconds = 60.0
    """The length of a run."""
    warmup: SecondsOrZero = 0.0
    """Seconds from the start that the metrics leave out."""
    sample: Seconds = 1.0
    """The length of a sample of the signals."""
    changes: Annotated[tuple[Change, ...], Meta(max_length=1_000)] = ()
    laws: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The settings of laws, by the law's name."""

    def check(self) -> None:
        """Raise `ConfigurationError` for values that do not go together."""
        super().check()
        fail_if(
            self.warmup >= self.seconds,
            f"warmup: {self.warmup:g} s must be less than the {self.seconds:g} s of the run",
        )
        fail_if(
            self.seconds / self.sample > MAX_SAMPLES,
            f"sample: {self.sample:g} s are too short; a run has at most {MAX_SAMPLES:,} samples",
        )
        self.station.check()
        for load in self.loads:
            load.check()
        names = [load.name for load in self.loads]
        fail_if(len(set(names)) < len(names), "loads: a name is used twice; names must be unique")
        for name in self.laws.keys() - set(self.compared):
            raise ConfigurationError(
                f"laws.{name}: this scenario does not run this law; it runs {', '.join(self.compared)}"
            )
        for name in self.compared:
            make_law(name, self.laws.get(name, {}), lambda: 0.0, folder=self.folder)
