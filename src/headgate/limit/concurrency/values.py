"""The values that the modules of the concurrency limit and its callers share: settings, requests, decisions, state."""

import enum
import math
from typing import Final, Literal, get_args

import msgspec

from headgate.errors import fail_if

Priority = Literal["people", "verified", "automated", "prefetch"]
"""A priority class of requests: those of people, of verified agents, of other agents, and prefetches."""

PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""The classes, the most important first."""

RANKS: Final[dict[Priority, int]] = {priority: rank for rank, priority in enumerate(PRIORITIES)}
"""The rank of each class: 0 for the most important one."""

Mode = Literal["off", "monitor", "enforce"]

_MAX: Final = 1_000_000


class Reason(enum.Enum):
    """Why a request was rejected."""

    FULL = "full"
    """The queue was full."""
    WAITED = "waited"
    """It had waited too long while the origin was overloaded."""
    TIMEOUT = "timeout"
    """It had waited for as long as its caller waits for a response."""

    __hash__ = object.__hash__  # that of Enum is in Python


class ConcurrencySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters of a `ConcurrencyLimit`; raises `ConfigurationError` for an invalid one."""

    max: int | Literal["learned"] = "learned"
    """Requests in flight at once, at most; or learned from latencies."""
    queue: int = 128
    """Requests that wait, at most. Below the capacity there are short queues of up to 64 requests."""
    mode: Mode = "enforce"
    """monitor computes the limit and rejects nothing."""
    ceiling: int = 1_000
    """The largest limit that is learned."""
    healthy_latency: float = 0.0
    """Mean seconds from a request to its response that a learned limit permits, such as twice the usual latency of a
    response. A learned limit needs it; 0 is for other limits."""
    abandoned: Literal["release", "hold"] = "release"
    """What the gate does with the permit of a request whose client leaves before the response: release it, or hold it
    until the origin answers or its timeout has passed. The middlewares hold it until the application has returned."""

    def __post_init__(self) -> None:
        for name, low in (("queue", 0), ("ceiling", 1), ("max", 1)):
            value = getattr(self, name)
            fail_if(
                value != "learned" and not low <= value <= _MAX,
                f"concurrency: {name} must be from {low} to {_MAX}, got {value!r}",
            )
        needs_latency = self.max == "learned" and self.mode != "off"
        fail_if(
            not 0.0 <= self.healthy_latency < math.inf or (needs_latency and not self.healthy_latency),
            "concurrency: healthy_latency must be the seconds of a healthy response, such as 0.2; "
            f"a learned limit needs it; got {self.healthy_latency!r}",
        )


class Waiting:
    """A request that got no permit; also stands for it in decisions. Subclasses may add what their caller needs."""

    __slots__ = ("flow", "priority", "since")

    def __init__(self, priority: Priority, flow: bytes, since: float) -> None:
        self.priority = priority
        self.flow = flow
        """The identifier of its client: clients of one class have equal parts of it."""
        self.since = since
        """The instant at which it arrived."""


class Decision(msgspec.Struct, frozen=True):
    """A waiting request that is in flight from now on, or is rejected."""

    request: Waiting
    starts: bool
    retry_after: float = 0.0
    """Seconds that a rejected client is asked to wait."""


class ConcurrencyState(msgspec.Struct, frozen=True):
    """What a limit is and does now, for operators; or the sum of those of several workers."""

    limit: float
    """Requests that may be in flight at the origin at once."""
    in_flight: int
    """Requests in flight at the origin."""
    queued: int
    """Requests that wait."""
    mode: Mode
    latency: float = 0.0
    """Mean seconds to recent responses, of a learned limit; 0 if not known. Of several workers, the longest."""
    overloaded: bool = False
    """Whether requests of any class have waited for so long that this is overload."""
    capacity: float = 0.0
    """Requests per second that the origin completes while others wait; 0 if not known."""
    waiting: dict[Priority, int] = {}
    """Requests that wait, by class."""
    rejected: dict[Priority, dict[str, int]] = {}
    """Requests rejected so far, in monitor mode those that would be, by class and the value of the `Reason`."""
    uncounted: int = 0
    """Requests at the origin beside those in flight: their responses have begun, in domains whose `streams` are
    uncounted."""
