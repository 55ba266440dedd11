"""The gate before a station: it carries out what a law decides, and answers the clients."""

from collections.abc import Iterable

from headgate.release import NEVER
from lab.chance import Draw
from lab.events.laws import Decision, Law, Outcome
from lab.events.meter import Meter
from lab.events.request import Answer, Request
from lab.events.settings import Station as StationSettings
from lab.events.station import Station
from lab.events.timeline import Timeline

_ANSWERS = {Outcome.ANSWERED: Answer.SERVED, Outcome.TIMED_OUT: Answer.FAILED}


class Gate:
    """Takes requests from clients, and passes those on that the law starts."""

    def __init__(self, timeline: Timeline, law: Law, station: StationSettings, draw: Draw, meter: Meter) -> None:
        self.law = law
        self.station = Station(timeline, station, draw, self._completed)
        self._timeline = timeline
        self._meter = meter
        self._wakeup = NEVER

    def arrive(self, request: Request) -> None:
        """Take a request that reaches the gate now."""
        now = self._timeline.now
        self._meter.current.offered += request.cost
        request.arrived = now
        request.is_queued = True  # until the law decides otherwise
        self._carry_out(self.law.arrived(request, now=now))

    def leave(self, request: Request) -> None:
        """Take the disconnection of a client that has given up; a request that has started is served all the same."""
        if request.is_queued:
            request.is_queued = False
            self._carry_out(self.law.left(request, now=self._timeline.now))

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            request = decision.request
            assert isinstance(request, Request)  # the one that the law was given
            request.is_queued = False
            if not decision.starts:
                self.station.refuse()
                request.client.receive(request, answer=Answer.REFUSED, retry_after=decision.retry_after)
            else:
                request.started = self._timeline.now
                self.station.start(request)
        if self.law.wakeup < self._wakeup:
            self._wakeup = self.law.wakeup
            self._timeline.schedule(max(self._wakeup, self._timeline.now), self._wake)

    def _wake(self, _: None) -> None:
        self._wakeup = NEVER
        if self.law.wakeup <= self._timeline.now:
            self._carry_out(self.law.awake(now=self._timeline.now))
        else:
            self._carry_out(())

    def _completed(self, request: Request, outcome: Outcome) -> None:
        now = self._timeline.now
        self._meter.served(request, now - request.arrived)
        request.client.receive(request, answer=_ANSWERS[outcome], retry_after=0.0)
        self._carry_out(self.law.completed(request, now - request.started, outcome, now=now))
