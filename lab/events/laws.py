"""Laws: what decides whether a request starts, waits or is refused; the protocol, and the two simplest ones.

A law reads no clock, never waits and schedules nothing. The world calls it with the instant of each event, and carries
out what it returns. The queue belongs to the law, because its order and its limits are part of a law.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Final, NamedTuple, Protocol

from msgspec import Meta

from headgate.release import NEVER
from lab.chance import Draw
from lab.ranges import Section
from lab.scenario import SecondsOrZero


class Outcome(Enum):
    """How a started request ended at the station."""

    ANSWERED = "answered"
    TIMED_OUT = "timed_out"
    """There was no answer within the time for which the gate waits."""


class Arriving(Protocol):
    """What a law may know of a request; it also stands for the request in calls and decisions."""

    flow: str
    """The client, or the group of clients, that sent it."""
    priority: str
    """The priority class of the flow."""


class Decision(NamedTuple):
    """A request that starts now, or is refused."""

    request: Arriving
    starts: bool
    retry_after: float = 0.0
    """Seconds that a refused client is asked to wait."""


NOTHING: Final[Sequence[Decision]] = ()
"""No request starts or is refused."""


class Law(Protocol):
    """Decides on requests. Each method returns the requests, of all that the law has, that start or are refused now.

    A request of which the law has returned nothing waits in the law's queue. `now` is in seconds and never decreases.
    The class of a law has its settings as `Settings`, a `Section`: the table of a scenario that has the law's name. It
    is called with such settings and with a source of random numbers.
    """

    wakeup: float
    """The instant at which `awake` is to be called, `NEVER` if it need not be; read after each call."""

    def arrived(self, request: Arriving, *, now: float) -> Sequence[Decision]:
        """Take a request that arrives at the gate."""

    def completed(self, request: Arriving, latency: float, outcome: Outcome, *, now: float) -> Sequence[Decision]:
        """Take the end of a started request, `latency` seconds after its start."""

    def left(self, request: Arriving, *, now: float) -> Sequence[Decision]:
        """Remove a request from the queue: its client has disconnected. Not called for a request that has started."""

    def awake(self, *, now: float) -> Sequence[Decision]:
        """Do what was due at `wakeup`."""

    def signals(self) -> Mapping[str, float]:
        """Return what is recorded of the law: `queued`, `limit` (NaN for none), and signals of its own."""


class NoLimit:
    """Starts every request: what happens without a limiter."""

    class Settings(Section, frozen=True):
        """There are none."""

    def __init__(self, settings: Settings, draw: Draw) -> None:  # noqa: ARG002 - the common form
        self.wakeup = NEVER

    def arrived(self, request: Arriving, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Start it."""
        return (Decision(request, starts=True),)

    def completed(self, request: Arriving, latency: float, outcome: Outcome, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Do nothing."""
        return NOTHING

    def left(self, request: Arriving, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Do nothing: no request waits."""
        return NOTHING

    def awake(self, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Do nothing."""
        return NOTHING

    def signals(self) -> Mapping[str, float]:
        """Return that there is no queue and no limit."""
        return {"queued": 0.0, "limit": float("nan")}


class FixedLimit:
    """At most `limit` requests at once, and a queue of at most `queue` in the order of arrival; the rest is refused.

    A subclass may change `limit` before it calls these methods: requests that have started then end first.
    """

    class Settings(Section, frozen=True, kw_only=True):
        """A limit, and the length of the queue."""

        limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 64
        queue: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
        retry_after: SecondsOrZero = 0.0
        """Seconds that refused clients are asked to wait."""

    def __init__(self, settings: Settings, draw: Draw) -> None:  # noqa: ARG002 - the common form
        self.wakeup = NEVER
        self.limit: float = settings.limit
        """The limit now."""
        self._settings = settings
        self._in_flight = 0
        self._queue: dict[Arriving, None] = {}  # in the order of arrival

    def arrived(self, request: Arriving, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Start it, queue it, or refuse it."""
        settings = self._settings
        if self._in_flight < self.limit:
            self._in_flight += 1
            return (Decision(request, starts=True),)
        if len(self._queue) < settings.queue:
            self._queue[request] = None
            return NOTHING
        return (Decision(request, starts=False, retry_after=settings.retry_after),)

    def completed(self, request: Arriving, latency: float, outcome: Outcome, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Start the requests that have waited longest."""
        self._in_flight -= 1
        decisions = []
        while self._queue and self._in_flight < self.limit:
            following = next(iter(self._queue))
            del self._queue[following]
            self._in_flight += 1
            decisions.append(Decision(following, starts=True))
        return decisions

    def left(self, request: Arriving, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Give its place in the queue back."""
        self._queue.pop(request, None)
        return NOTHING

    def awake(self, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Do nothing."""
        return NOTHING

    def signals(self) -> Mapping[str, float]:
        """Return the length of the queue, and the limit."""
        return {"queued": float(len(self._queue)), "limit": float(self.limit)}
