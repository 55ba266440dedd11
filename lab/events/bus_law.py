"""A law of gatekeepers that obey one master over a bus: each flow is an identifier."""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Annotated, NamedTuple

from msgspec import Meta

from headgate.errors import fail_if
from headgate.limit import Accounting, Rule
from headgate.limit.history import AlgorithmName
from headgate.release import NEVER, Status
from lab.chance import Draw
from lab.events.bus import Bus, BusSettings
from lab.events.laws import NOTHING, Arriving, Decision, Outcome
from lab.events.timeline import Timeline
from lab.ranges import Section
from lab.scenario import Name, SecondsOrZero, Share

START = 1_000.0
"""Added to instants: the cores take seconds since 1970, at which no message is sent."""


class Delayed(NamedTuple):
    """A request that waits at its gatekeeper until its release time."""

    release: float
    number: int
    """The order of requests with the same release time."""
    request: Arriving


class GatekeeperLaw:
    """Requests reach a random one of several gatekeepers, and are accepted, delayed or rejected there."""

    class Settings(Section, frozen=True, kw_only=True):
        """A rule for each flow, and the bus."""

        rule: Name
        """Such as "10/s burst 5"."""
        algorithm: AlgorithmName = "log"
        gatekeepers: Annotated[int, Meta(ge=1, le=1_000)] = 1
        control_delay: SecondsOrZero = 0.0
        """Seconds from a decision to the obeyed control, at most."""
        batch_delay: SecondsOrZero = 0.0
        """The part of it for which the first verdict of a batch waits for more."""
        max_delay: SecondsOrZero = 0.0
        """Requests that are held for longer are rejected."""
        loss: Share = 0.0
        """The share of the accounting messages that are lost."""

    def __init__(self, settings: Settings, draw: Draw) -> None:
        fail_if(
            settings.batch_delay > settings.control_delay,
            f"batch_delay: {settings.batch_delay:g} s is a part of the control_delay, {settings.control_delay:g} s",
        )
        self._timeline = Timeline(START)
        self._draw = draw
        self._gatekeepers = settings.gatekeepers
        self._bus = Bus(
            BusSettings(
                Rule.parse(settings.rule),
                settings.algorithm,
                settings.gatekeepers,
                settings.control_delay,
                settings.batch_delay,
                settings.max_delay,
                loss=settings.loss,
            ),
            self._timeline,
            draw,
        )
        self._delayed: list[Delayed] = []
        self._accounting: dict[Arriving, tuple[int, Accounting]] = {}
        """The gatekeeper and the verdict of each request that is delayed."""
        self._number = 0

    @property
    def wakeup(self) -> float:
        """The earliest release time of a delayed request. Messages on the bus need no call: they happen in between."""
        return self._delayed[0].release if self._delayed else NEVER

    def arrived(self, request: Arriving, *, now: float) -> Sequence[Decision]:
        """Let one of the gatekeepers decide."""
        self._timeline.run_through(now + START)
        gatekeeper = int(self._draw() * self._gatekeepers)
        accounting = self._bus.admit(gatekeeper, request.flow.encode())
        if accounting.status is Status.ACCEPTED:
            return (Decision(request, starts=True),)
        if accounting.status is Status.REJECTED:
            return (Decision(request, starts=False, retry_after=accounting.wait),)
        self._number += 1
        heappush(self._delayed, Delayed(now + accounting.wait, self._number, request))
        self._accounting[request] = gatekeeper, accounting
        return NOTHING

    def completed(self, request: Arriving, latency: float, outcome: Outcome, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Do nothing: rules do not depend on the end of a request."""
        return NOTHING

    def left(self, request: Arriving, *, now: float) -> Sequence[Decision]:  # noqa: ARG002 - the protocol
        """Free the slot of a delayed request."""
        self._bus.cancel(*self._accounting.pop(request))
        return NOTHING

    def awake(self, *, now: float) -> Sequence[Decision]:
        """Start the delayed requests whose release time has come, unless their clients have left."""
        decisions = []
        while self.wakeup <= now:
            request = heappop(self._delayed).request
            if self._accounting.pop(request, None) is not None:
                decisions.append(Decision(request, starts=True))
        return decisions

    def signals(self) -> Mapping[str, float]:
        """Return the number of delayed requests, and of the controls so far."""
        return {"queued": float(len(self._accounting)), "limit": float("nan"), "controls": float(self._bus.controls)}
