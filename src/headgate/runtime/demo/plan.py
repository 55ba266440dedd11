"""What the demonstration shows: its phases, who sends how much in each, and the times that follow from its length."""

import math
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from headgate.errors import ConfigurationError

Kind: TypeAlias = Literal["people", "agents", "prefetch", "crawlers"]
"""Who sends requests: people, polite agents, clients of prefetch proxies, and crawlers that obey nothing."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

PhaseName: TypeAlias = Literal["calm", "overload_without", "overload_with", "outage", "recovery"]

Load: TypeAlias = dict[Kind, float]
"""Requests per second of each kind, relative to the capacity of the origin."""

CALM: Final[Load] = {"people": 0.2, "agents": 0.15, "prefetch": 0.15, "crawlers": 0.05}
OVERLOAD: Final[Load] = {"people": 0.4, "agents": 4.8, "prefetch": 4.5, "crawlers": 0.3}
"""Ten times the capacity; people and crawlers alone stay below it, so that advice can do the rest."""

MIN_SECONDS: Final = 10.0
MAX_SECONDS: Final = 3_600.0


class Phase(NamedTuple):
    """One phase of the demonstration."""

    name: PhaseName
    part: float
    """Its part of the whole time."""
    load: Load
    has_gate: bool
    """Whether requests go through the gate, or to the origin itself."""
    has_origin: bool
    """Whether the origin runs."""
    title: str
    story: str
    """What happens, in words for people who see it for the first time."""


PHASES: Final = (
    Phase(
        "calm",
        0.12,
        CALM,
        has_gate=True,
        has_origin=True,
        title="Calm",
        story="A small site on a quiet day, behind headgate. Traffic advice welcomes every agent.",
    ),
    Phase(
        "overload_without",
        0.15,
        OVERLOAD,
        has_gate=False,
        has_origin=True,
        title="Overload, without headgate",
        story="The site is in the news: ten times what it can serve, straight to the origin. It works on requests "
        "whose senders have given up, so its queue grows until every response is too late.",
    ),
    Phase(
        "overload_with",
        0.4,
        OVERLOAD,
        has_gate=True,
        has_origin=True,
        title="Overload, with headgate",
        story="The same load, through the gate. At once, it limits the requests in flight and serves people first. "
        "Refused agents wait as long as they are asked to. Then traffic advice asks agents for what is left.",
    ),
    Phase(
        "outage",
        0.1,
        OVERLOAD,
        has_gate=True,
        has_origin=False,
        title="Outage",
        story="The process of the origin is killed. The gate answers at once instead of letting people wait.",
    ),
    Phase(
        "recovery",
        0.23,
        CALM,
        has_gate=True,
        has_origin=True,
        title="Recovery",
        story="The origin is back, the news is over, and advice welcomes agents again.",
    ),
)
"""The phases in their order; their parts sum to 1."""


class Plan(msgspec.Struct, frozen=True):
    """The numbers of one demonstration; raises `ConfigurationError` for a length that is out of range."""

    seconds: float = 120.0
    """How long all phases take together."""
    phases: tuple[Phase, ...] = PHASES
    workers: int = 10
    """Requests that the origin serves at the same time."""
    service_time: float = 0.1
    """Seconds for each."""
    max_in_flight: int | Literal["learned"] = 15
    """The concurrency limit of the gate: by default as many as the workers, and a few that are next."""
    queue: int = 30
    """Requests that wait at the gate for a place, at most."""
    target: float = 1.0
    """The part of the capacity that advice fills; the limit refuses what is too much at times."""
    deadline: float = 1.0
    """Seconds after which a client gives up."""
    clients: tuple[tuple[Kind, int], ...] = (("people", 40), ("agents", 60), ("prefetch", 80), ("crawlers", 20))
    """How many clients of each kind there are."""

    def __post_init__(self) -> None:
        if not MIN_SECONDS <= self.seconds <= MAX_SECONDS:
            raise ConfigurationError(
                f"the demonstration takes {MIN_SECONDS:g} to {MAX_SECONDS:g} seconds, got {self.seconds!r}"
            )

    @property
    def capacity(self) -> float:
        """Requests per second that the origin can serve."""
        return self.workers / self.service_time

    @property
    def max_age(self) -> int:
        """Seconds that advice stays fresh: in place of ten minutes, so short that advice acts within a phase."""
        return max(1, math.floor(self.seconds / 15))

    @property
    def period(self) -> float:
        """Seconds between two decisions on advice."""
        return self.max_age / 4
