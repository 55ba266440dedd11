"""Clients: they send requests, wait for answers until their timeout, and send others."""

from lab.chance import Chance, Draw, exponential
from lab.events.gate import Gate
from lab.events.meter import Meter
from lab.events.request import Answer, Request
from lab.events.settings import Load
from lab.events.timeline import Timeline


class Clients:
    """The clients of one load; subclasses decide when the next request is sent."""

    def __init__(self, load: Load, timeline: Timeline, gate: Gate, meter: Meter, draw: Draw) -> None:
        self._load = load
        self._timeline = timeline
        self._gate = gate
        self._meter = meter
        self._draw = draw
        self._time = load.service.sampler(draw) if load.service is not None else lambda: 0.0
        self._cost = load.cost(gate.station.settings)

    def receive(self, request: Request, *, answer: Answer, retry_after: float) -> None:
        """Take the answer to a request, unless the client has given up."""
        if not request.has_ended:
            request.has_ended = True
            self._meter.ended(request, answer)
            self._continue(answer, retry_after)

    def _send(self) -> None:
        load, timeline = self._load, self._timeline
        now = timeline.now
        request = Request(self, load, cost=self._cost, time=self._time(), sent=now)
        timeline.schedule(now + load.timeout, self._give_up, request)
        self._gate.arrive(request)

    def _give_up(self, request: Request) -> None:
        if not request.has_ended:
            request.has_ended = True
            self._meter.ended(request, Answer.LATE)
            self._gate.leave(request)
            self._continue(Answer.LATE, 0.0)

    def _continue(self, answer: Answer, retry_after: float) -> None:
        """Do what follows the end of a request."""


class OpenLoad(Clients):
    """Requests that arrive whatever happens to others."""

    def begin(self, capacity: float) -> None:
        """Schedule the first request; `capacity` is that of the station at the start."""
        self._profile = self._load.profile(capacity / self._cost)
        self._even = self._load.arrivals == "even"
        self._schedule_next()

    def _schedule_next(self) -> None:
        area = 1.0 if self._even else exponential(1.0, self._draw)
        now = self._timeline.now
        self._timeline.schedule(self._profile.after(now, area), self._send_and_continue)

    def _send_and_continue(self, _: None) -> None:
        self._send()
        self._schedule_next()


class ClosedLoad(Clients):
    """Clients each of which waits for its answer, and for a while more, before it sends its next request."""

    def begin(self, capacity: float) -> None:  # noqa: ARG002 - the common form
        """Schedule the first request of each client."""
        load = self._load
        for _ in range(load.clients or 0):
            self._timeline.schedule(load.begin + load.spread * self._draw(), self._send_next)

    def _send_next(self, _: None) -> None:
        self._send()

    def _continue(self, answer: Answer, retry_after: float) -> None:
        load = self._load
        if answer is Answer.SERVED:
            wait = exponential(load.think, self._draw)
        else:
            wait = max(load.pause * (0.5 + self._draw()), retry_after)
        self._timeline.schedule(self._timeline.now + wait, self._send_next)


def clients_of(load: Load, timeline: Timeline, gate: Gate, meter: Meter, chance: Chance) -> OpenLoad | ClosedLoad:
    """Return the clients of a load."""
    kind = ClosedLoad if load.arrivals == "closed" else OpenLoad
    return kind(load, timeline, gate, meter, chance.stream(f"load {load.name}"))
