"""The station: it serves requests, and takes longer for each while too many are in flight."""

import math
from collections import deque
from collections.abc import Callable

from lab.chance import Draw
from lab.events.laws import Outcome
from lab.events.level import Level
from lab.events.meter import Counts
from lab.events.request import Request
from lab.events.settings import Change
from lab.events.settings import Station as Settings
from lab.events.timeline import Timeline


class Station:
    """Serves requests in the order of their start; `finished(request, outcome)` is called at the end of each.

    A refusal is work, too: it takes a server for its cost, before any request that waits. Without servers, as many
    refusals are served at once as the knee allows, and each of them counts as a request in flight.
    """

    def __init__(
        self, timeline: Timeline, settings: Settings, draw: Draw, finished: Callable[[Request, Outcome], None]
    ) -> None:
        self._timeline = timeline
        self.settings = settings
        """The table of the scenario."""
        self._finished = finished
        self._service_time = settings.service.sampler(draw)
        self._refusal_time = settings.refusal_cost * settings.service.mean
        self._backlog: deque[Request] = deque()
        self._refusals = 0  # that wait
        self._refusing = 0  # that are being served
        self._slowdown = 1.0
        self._hang = 0.0
        self._servers = self._knee = math.inf
        self.capacity = Level()
        """Requests per second."""
        self.concurrency = Level()
        """Requests in flight with which the station reaches its capacity."""
        self.in_flight = Level()
        """Requests that have started and not ended, those that wait for a server included."""
        self.busy = Level()
        """Requests and refusals that are being served."""
        self.change(Change(at=0.0))

    def change(self, change: Change) -> None:
        """Change the capacity or the service times, for all requests that are served from now on."""
        settings = self.settings
        self._servers = _scaled(settings.servers, change.capacity)
        self._knee = _scaled(settings.knee, change.capacity)
        self._slowdown, self._hang = change.slowdown, change.hang
        now, concurrency = self._timeline.now, min(self._servers, self._knee)
        self.concurrency.add(concurrency - self.concurrency.value, now)
        self.capacity.add(concurrency / (settings.service.mean * change.slowdown) - self.capacity.value, now)
        self._serve_waiting()

    def measure(self, counts: Counts, seconds: float) -> None:
        """Add the means of the last `seconds` to the counts of an interval that ends now, and begin new ones."""
        now = self._timeline.now
        counts.seconds += seconds
        counts.work += self.capacity.mean(now) * seconds
        counts.in_flight += self.in_flight.mean(now) * seconds
        counts.utilisation += min(1.0, self.busy.mean(now) / self.concurrency.mean(now)) * seconds
        counts.maximum = max(counts.maximum, self.in_flight.maximum)
        for level in (self.capacity, self.concurrency, self.in_flight, self.busy):
            level.restart(now)

    def start(self, request: Request) -> None:
        """Serve a request as soon as a server is free."""
        self.in_flight.add(1, self._timeline.now)
        self._backlog.append(request)
        self._serve_waiting()

    def refuse(self) -> None:
        """Do the work of a refusal."""
        if self._refusal_time:
            self._refusals += 1
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        timeline, backlog, busy, concurrency = self._timeline, self._backlog, self.busy, self.concurrency.value
        while busy.value < self._servers:
            if self._refusals and self._refusing < concurrency:
                self._refusals -= 1
                self._refusing += 1
                busy.add(1, timeline.now)
                duration = self._refusal_time * self._slowdown * self._stretch()
                timeline.schedule(timeline.now + duration, self._refused)
            elif backlog:
                request = backlog.popleft()
                busy.add(1, timeline.now)
                duration = self._hang or (request.time or self._service_time()) * self._slowdown * self._stretch()
                request.hangs = self._hang > 0
                timeline.schedule(timeline.now + duration, self._served, request)
            else:
                return

    def _stretch(self) -> float:
        """Return by how much the service time rises because of what is in flight."""
        load = (self.in_flight.value + self._refusing) / self._knee
        return 1.0 if load <= 1.0 else load * (1.0 + self.settings.degradation * (load - 1.0))

    def _refused(self, _: None) -> None:
        self._refusing -= 1
        self.busy.add(-1, self._timeline.now)
        self._serve_waiting()

    def _served(self, request: Request) -> None:
        self.busy.add(-1, self._timeline.now)
        self.in_flight.add(-1, self._timeline.now)
        self._finished(request, Outcome.TIMED_OUT if request.hangs else Outcome.ANSWERED)
        self._serve_waiting()


def _scaled(number: int | None, factor: float) -> float:
    return math.inf if number is None else max(1.0, float(round(number * factor)))
