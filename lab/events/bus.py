"""Gatekeepers and a master in simulated time: the real cores, and messages that take a fixed time.

The *control delay* is the time from a gatekeeper's decision on a request to the moment when every gatekeeper obeys the
control that follows from it. It is the time for which a batch waits, and two equal ways: that of the accounting message
and that of the control message. Timestamps are rounded as on the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec.structs import replace

from headgate.limit import Accounting, DelayUntil, Domain, Gatekeeper, Master, Rule
from headgate.limit.gatekeeper import spacing
from headgate.limit.history import AlgorithmName
from headgate.limit.messages import to_milliseconds
from headgate.release import ASAP
from lab.chance import Draw
from lab.events.timeline import Timeline

Local = Literal["nothing", "own rule", "spaced controls"]
"""What a gatekeeper does besides obeying: apply the rule to its own requests too, or space controls by the interval."""

DOMAIN = "api"
"""The name of the only domain."""

CONTROL, ACCOUNTING, REQUEST = range(3)
"""The order of what happens at one instant: a control that arrives then is obeyed by a request that arrives then."""

_NO_LIMIT = 1_000_000_000


@dataclass(frozen=True)
class BusSettings:
    """What is simulated: one rule, and the delays between its gatekeepers and their master."""

    rule: Rule
    algorithm: AlgorithmName
    gatekeepers: int = 1
    control_delay: float = 0.0
    """Seconds from a decision to the obeyed control, at most."""
    batch_delay: float = 0.0
    """The part of it for which the first verdict of a batch waits for more; 0 for one message per verdict."""
    max_delay: float = 0.0
    local: Local = "nothing"
    loss: float = 0.0
    """The share of the accounting messages that are lost, at random."""


class ControlHandler(Protocol):
    """What obeys controls."""

    def obey(self, control: DelayUntil, /, *, now: float) -> None:
        """Obey a control received at `now`."""


class Bus:
    """The cores, and the messages on their way, which are events of the timeline."""

    def __init__(self, settings: BusSettings, timeline: Timeline, draw: Draw) -> None:
        self.controls = 0
        """The number of controls that the master has sent."""
        self._settings = settings
        self._timeline = timeline
        self._draw = draw
        self._way = (settings.control_delay - settings.batch_delay) / 2
        self._domain = Domain(DOMAIN, (settings.rule,), settings.algorithm)
        self._master = Master([self._domain])
        self._gatekeepers = [self._new_gatekeeper() for _ in range(settings.gatekeepers)]
        self._handlers: list[ControlHandler] = list(self._gatekeepers)
        if settings.local == "spaced controls":
            self._handlers = [SpacedControls(gatekeeper, settings.rule) for gatekeeper in self._gatekeepers]

    def admit(self, gatekeeper: int, identifier: bytes) -> Accounting:
        """Return the verdict of a gatekeeper, by its number, on a request that arrives now."""
        now = self._timeline.now
        # What has expired is dropped as soon as that is possible, as by a server several times per second.
        self._master.forget(now=now)
        for one in self._gatekeepers:
            one.forget(now=now)
        return self._gatekeepers[gatekeeper].admit(DOMAIN, identifier, now=now)

    def cancel(self, gatekeeper: int, accounting: Accounting) -> None:
        """Free the slot of a delayed request whose client has disconnected."""
        self._gatekeepers[gatekeeper].cancel(accounting)

    def _new_gatekeeper(self) -> Gatekeeper:
        settings, timeline, waiting = self._settings, self._timeline, list[Accounting]()

        def send(_: None) -> None:
            if self._draw() >= settings.loss:
                timeline.schedule(timeline.now + self._way, self._account, waiting.copy(), rank=ACCOUNTING)
            waiting.clear()

        def account(accounting: Accounting, now: float) -> None:
            waiting.append(accounting)
            if len(waiting) == 1:  # the first of a batch waits for more
                timeline.schedule(now + settings.batch_delay, send, rank=ACCOUNTING) if settings.batch_delay else send(
                    None
                )

        return Gatekeeper(
            account,
            master=Master([self._domain]) if settings.local == "own rule" else None,
            max_delay=settings.max_delay,
            max_delayed=_NO_LIMIT,
            spacing=spacing([self._domain]),
        )

    def _account(self, batch: Sequence[Accounting]) -> None:
        now = self._timeline.now
        for accounting in batch:
            received, release = _on_wire(accounting.received), _on_wire(accounting.release)
            control = self._master.account(replace(accounting, received=received, release=release), now)
            if control is not None:
                self.controls += 1
                control = replace(control, release=_on_wire(control.release))
                self._timeline.schedule(now + self._way, self._obey, control, rank=CONTROL)

    def _obey(self, control: DelayUntil) -> None:
        for handler in self._handlers:
            handler.obey(control, now=self._timeline.now)


class SpacedControls:
    """Takes a control within one interval of the previous one as evidence of a request beyond the rule."""

    def __init__(self, gatekeeper: Gatekeeper, rule: Rule) -> None:
        self._gatekeeper = gatekeeper
        self._interval = rule.interval
        self._latest = self._release = ASAP

    def obey(self, control: DelayUntil, /, *, now: float) -> None:
        """Hold the identifier for one interval more than by the previous control."""
        if control.release > self._latest:
            self._latest = control.release
            self._release = max(control.release, self._release + self._interval)
            self._gatekeeper.obey(replace(control, release=self._release), now=now)


def _on_wire(instant: float) -> float:
    return to_milliseconds(instant) / 1_000.0
