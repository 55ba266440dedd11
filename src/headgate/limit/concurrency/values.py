"""The values that the modules of the concurrency limit and its callers share: settings, requests, decisions, state."""

import enum
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from headgate.errors import ConfigurationError

Priority = Literal["people", "verified", "automated", "prefetch"]
"""A priority class of requests: those of people, of verified agents, of other agents, and prefetches."""

PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""The classes, the most important first."""

Mode = Literal["off", "monitor", "enforce"]

_MAX: Final = 1_000_000
_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


class Outcome(enum.Enum):
    """How a request that was in flight ended."""

    ANSWERED = "answered"
    """With a response, whatever its status."""
    TIMED_OUT = "timed out"
    """The origin sent no response in time."""
    UNKNOWN = "unknown"
    """The client left, or the origin could not be reached: the time says nothing of the load."""

    __hash__ = object.__hash__  # that of Enum is in Python, and each request needs one


class Reason(enum.Enum):
    """Why a request was refused."""

    FILLING = "filling"
    """More than half of the queue was taken: the more, the more requests are refused."""
    FULL = "full"
    """The queue was full."""
    WAITED = "waited"
    """It had waited too long while the origin was overloaded."""

    __hash__ = object.__hash__  # as that of `Outcome`


class LimitReason(enum.Enum):
    """Why a learned limit was changed, or kept after a trial."""

    START = "start"
    """At the start, the throughput followed the limit."""
    NO_QUEUE = "no queue at the origin"
    """A higher limit is tried: no requests wait at the origin."""
    PROBE = "probe"
    """A higher limit is tried: the last trial was long ago."""
    GAIN = "gain"
    """The throughput rose with the limit, which stays."""
    NO_GAIN = "no gain"
    """The throughput did not rise with the limit, which returns."""
    QUEUE = "queue at the origin"
    """A lower limit is tried: requests wait at the origin."""
    SEARCH = "search"
    """Half of the limit is tried: it is too high, and no baseline says by how much."""
    NO_LOSS = "no loss"
    """The throughput did not fall with the limit, which stays."""
    LOSS = "loss"
    """The throughput fell with the limit, which returns."""
    NOT_REACHED = "not reached"
    """The limit was not reached any more during a trial, which had no result."""
    OFTEN_REACHED = "often reached"
    """Requests wait for a place for moments, and none at the origin."""
    ESTIMATE = "estimate"
    """In monitor mode, the limit is what the latencies say."""
    SLOW = "slow"
    """Too many responses took longer than the healthy latency."""
    TIMEOUTS = "timeouts"
    """Most requests timed out."""
    EVENT_LOOP = "event loop"
    """The event loop of the gate was late."""

    __hash__ = object.__hash__


CONFIGURED: Final = "configured"
"""The reason of a limit that is not learned."""


class ConcurrencySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters of a `ConcurrencyLimit`; raises `ConfigurationError` for an invalid one."""

    max: int | Literal["learned"] = "learned"
    """Requests in flight at once, at most; or learned from latencies."""
    queue: int = 128
    """Requests that wait, at most. Below the capacity, queues of up to 64 come and go: a shorter one refuses them."""
    queue_target: float = 0.01
    """Seconds that a request may wait while the origin is overloaded, or half the time of a request if that is more."""
    mode: Mode = "enforce"
    """monitor computes everything and refuses nothing."""
    floor: int = 4
    """The smallest limit that is learned."""
    ceiling: int = 1_000
    """The largest limit that is learned."""
    freeze: bool = False
    """Whether a learned limit stays as it is."""
    healthy_latency: float = 0.0
    """Seconds that a response may take at most; longer ones lower a learned limit. 0 sets no bound."""

    def __post_init__(self) -> None:
        for name, low in (("queue", 0), ("floor", 1), ("ceiling", 1), ("max", 1)):
            value = getattr(self, name)
            if value != "learned" and not low <= value <= _MAX:
                raise ConfigurationError(f"concurrency: {name} must be from {low} to {_MAX}, got {value!r}")
        if self.floor > self.ceiling:
            raise ConfigurationError(
                f"concurrency: floor must be at most ceiling ({self.ceiling!r}), got {self.floor!r}"
            )
        for name in ("queue_target", "healthy_latency"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigurationError(f"concurrency: {name} must be a number of seconds, 0 or more, got {value!r}")


class Waiting:
    """A request that found no place; also stands for it in decisions. Subclasses may add what their caller needs."""

    __slots__ = ("domain", "flow", "priority", "since")

    def __init__(self, domain: str, priority: Priority, flow: bytes, since: float) -> None:
        self.domain = domain
        """The name of its domain; empty for none."""
        self.priority = priority
        self.flow = flow
        """The identifier of its client: clients of one class have equal parts of it."""
        self.since = since
        """The instant at which it arrived."""


class Decision(msgspec.Struct, frozen=True):
    """A waiting request that is in flight from now on, or is refused."""

    request: Waiting
    starts: bool
    retry_after: float = 0.0
    """Seconds that a refused client is asked to wait."""


class ConcurrencyState(NamedTuple):
    """What a limit is and does now, for operators."""

    limit: float
    in_flight: int
    queued: int
    mode: Mode
    reason: str
    """Why the limit was changed last: the value of a `LimitReason`, or `CONFIGURED`."""
    baseline: float
    """Seconds that responses take at low load; 0 if not known."""
    waiting: Mapping[Priority, int] = _EMPTY
    """Requests that wait now, by class. In monitor mode these and the following ones are those that would be."""
    started: Mapping[Priority, int] = _EMPTY
    """Requests so far that started after they had waited, by class."""
    refused: Mapping[Priority, Mapping[str, int]] = _EMPTY
    """Requests refused so far, by class and the value of the `Reason`."""
    overloaded: bool = False
    """Whether requests of any class have waited for so long that this is overload."""
    duration: float = 0.0
    """Seconds for which requests are in flight, smoothed."""
    capacity: float = 0.0
    """Requests per second that the origin was seen to answer at most; 0 if not known."""
    changes: Mapping[str, int] = _EMPTY
    """How often a learned limit was changed so far, or kept after a trial, by the value of the `LimitReason`."""
