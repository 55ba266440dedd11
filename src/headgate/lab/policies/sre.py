"""Adaptive throttling on the client: requests fail locally with a probability that follows from those accepted.

B. Beyer and others, "Site Reliability Engineering", chapter 21, "Client-Side Throttling": each client counts, for the
last two minutes, `requests`, "the number of requests attempted by the application layer", and `accepts`, "the number of
requests accepted by the backend". A new request is rejected locally with the probability

    max(0, (requests - K * accepts) / (requests + 1))

where requests that were rejected locally count as requests. K is 2.
"""

import math
from collections import deque
from typing import Final

from headgate.lab.policies import AgentView, Draw, Headers, OriginView, Policy
from headgate.release import ASAP, NEVER

K: Final = 2.0
WINDOW: Final = 120.0
"""Seconds for which requests and accepts are counted."""
REFUSALS: Final = frozenset({429, 502, 503, 504})
"""Statuses of a request that the server did not accept; one that it accepted may fail all the same, with a 500."""


def rejection_probability(requests: int, accepts: int, *, k: float = K) -> float:
    """Return the probability with which a client rejects its next request."""
    return max(0.0, (requests - k * accepts) / (requests + 1))


class SlidingCount:
    """The number of events in the last `WINDOW` seconds."""

    def __init__(self) -> None:
        self._instants: deque[float] = deque()

    def add(self, now: float) -> None:
        """Count an event."""
        self._instants.append(now)

    def at(self, now: float) -> int:
        """Return the number at `now`."""
        instants, earliest = self._instants, now - WINDOW
        while instants and instants[0] <= earliest:
            instants.popleft()
        return len(instants)


class AdaptiveThrottling(Policy):
    """One client of the book: it counts for itself."""

    def __init__(self, agent: AgentView, origin: OriginView, draw: Draw) -> None:
        super().__init__(agent, origin, draw)
        self._requests = SlidingCount()
        self._accepts = SlidingCount()

    def release(self, *, now: float) -> float:
        """Count an attempt; reject it with the probability of the formula, until the agent's next own attempt."""
        probability = rejection_probability(self._requests.at(now), self._accepts.at(now))
        self._requests.add(now)
        return math.nextafter(now, NEVER) if probability > 0.0 and self.draw() < probability else ASAP

    def received(self, status: int, headers: Headers, *, now: float) -> None:  # noqa: ARG002 - a `Policy`
        """Count the request as accepted, unless it was refused."""
        if status not in REFUSALS:
            self._accepts.add(now)
