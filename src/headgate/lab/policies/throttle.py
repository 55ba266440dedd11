"""The real throttle of `headgate.throttle`: with the backoff policy of the document, and with that of Chromium."""

from typing import ClassVar

from headgate import throttle
from headgate.lab.policies import AgentView, Draw, Headers, OriginView, Policy


class Draft(Policy):
    """The throttle with the numbers of anti-ddos-throttling.txt, section 5."""

    backoff: ClassVar[throttle.Policy] = throttle.Policy()

    def __init__(self, agent: AgentView, origin: OriginView, draw: Draw) -> None:
        super().__init__(agent, origin, draw)
        # No origin of a world is this machine: then the throttle need not ask for each failure whether it is.
        self.throttle = throttle.Throttle(self.backoff, draw=draw, hold_localhost=True)
        """The throttle of this agent."""
        target = self.throttle.target(origin.url)
        assert target is not None  # the URL of an origin is an http URL
        self._target = target

    def release(self, *, now: float) -> float:
        """Return the release time of the origin's target."""
        return self.throttle.release_time(self._target, now=now)

    def received(self, status: int, headers: Headers, *, now: float) -> None:
        """Count the response."""
        self.throttle.response_received(self._target, status, headers, now=now)


class Chromium(Draft):
    """The throttle with the numbers that Chromium shipped: the first backoff is 0.7 s, the jitter 40 %."""

    backoff = throttle.Policy.chromium()
