"""A gate before an origin: it forwards at most the capacity, people first, and has the refused return at that rate.

It decides with a real `Gatekeeper` and `Master`. Automated traffic is one identifier under one rule, the capacity; what
people request and what refusals cost is counted for the same identifier, so that automated traffic gets what is left.
People are never held by a rule. This module knows neither statuses nor worlds; instants are seconds.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from typing import Final, Generic, TypeVar

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.limit.messages import Accounting
from headgate.release import Status

Request = TypeVar("Request")

PEOPLE: Final = "people"
AUTOMATED: Final = "automated"
"""The two domains: requests of people, which no rule limits, and of automated agents."""

EVERY_AGENT: Final = b"*"
"""The identifier that all automated traffic shares."""

_MAX_RETRY_AFTER: Final = 3600.0
"""Seconds after which every refused agent may return."""
_PERIOD_MS: Final = 1_000_000
"""The period of a rule whose rate is any number: a thousand seconds."""


def rule_of(rate: float, *, burst: int) -> Rule:
    """Return the rule of `rate` requests per second, exact to a thousandth of a request."""
    return Rule(max(1, round(Fraction(rate) * _PERIOD_MS / 1000)), _PERIOD_MS, max(1, burst))


class ReturnTimes:
    """When refused requests may be sent again: in the order of their refusal, no more at a time than can be served.

    The places are given by a second gatekeeper whose rule is the capacity: a refused agent is in a queue, but waits at
    its own end of the connection. `spread` seconds of jitter are added, so that no herd returns at one instant.
    """

    def __init__(self, rate: float, *, spread: float, draw: Callable[[], float]) -> None:
        self._spread = spread
        self._draw = draw
        self._gatekeeper = Gatekeeper.embedded(
            [Domain(AUTOMATED, (rule_of(rate, burst=1),), "gcra")],
            max_delay=_MAX_RETRY_AFTER,
            max_delayed=math.ceil(rate * _MAX_RETRY_AFTER),
        )

    def retry_after(self, *, now: float, release: float = 0.0) -> int:
        """Return the whole seconds after which a request refused at `now` may return, not before `release`."""
        place = self._gatekeeper.admit(AUTOMATED, EVERY_AGENT, now=now).release
        return max(1, math.ceil(max(place, release) - now + self._spread * self._draw()))


class Gate(Generic[Request]):
    """The queues of one gate. `capacity` is what the origin serves per second; a refusal costs `refusal_cost` of it.

    Automated requests are delayed by up to `max_delay` seconds, and beyond that refused. `admit` each request, then
    `forward` what is due.
    """

    def __init__(
        self,
        capacity: float,
        *,
        refusal_cost: float,
        draw: Callable[[], float],
        max_delay: float = 5.0,
        spread: float = 3.0,
    ) -> None:
        self._capacity = capacity
        self._refusal_cost = refusal_cost
        self._longest_queue = math.ceil(capacity * max_delay)
        self._gatekeeper = Gatekeeper.embedded(
            [Domain(PEOPLE), Domain(AUTOMATED, (rule_of(capacity, burst=round(capacity)),), "gcra")],
            max_delay=max_delay,
            max_delayed=self._longest_queue + 1,
        )
        assert self._gatekeeper.master is not None
        self._account = self._gatekeeper.master.account
        self._returns = ReturnTimes(capacity, spread=spread, draw=draw)
        self._people: deque[Request] = deque()
        self._automated: list[tuple[float, int, Request]] = []
        self._admitted = 0
        self._unpaid = 0.0
        self._room = 0.0

    @property
    def queued(self) -> int:
        """Requests that were admitted and not forwarded yet."""
        return len(self._people) + len(self._automated)

    def admit(self, request: Request, *, is_automated: bool, now: float) -> int:
        """Queue a request and return 0, or refuse it and return its Retry-After in seconds."""
        if not is_automated:
            return self._admit_of_people(request, now)
        verdict = self._gatekeeper.admit(AUTOMATED, EVERY_AGENT, now=now)
        if verdict.status is Status.REJECTED:
            return self._refuse(now, verdict.release)
        self._admitted += 1  # orders requests of one release time
        heapq.heappush(self._automated, (verdict.release, self._admitted, request))
        return 0

    def forward(self, *, until: float, seconds: float) -> list[Request]:
        """Return the requests to forward before `until`: people's first, then automated ones that are released.

        They are no more than the origin serves in `seconds`, less the cost of the refusals since the last call.
        """
        # Refusals that cost more than the origin has in this time leave nothing, and no debt.
        room = max(0.0, self._room + self._capacity * seconds)
        requests: list[Request] = []
        while self._people and len(requests) + 1 <= room:
            requests.append(self._people.popleft())
        automated = self._automated
        while automated and automated[0][0] < until and len(requests) + 1 <= room:
            requests.append(heapq.heappop(automated)[2])
        # The part of a request that was left is not lost; capacity that was not used is.
        self._room = min(room - len(requests), 1.0)
        return requests

    def retry_after(self, *, now: float) -> int:
        """Return the Retry-After of a request that was forwarded in vain, because the origin is down."""
        return self._returns.retry_after(now=now)

    def _admit_of_people(self, request: Request, now: float) -> int:
        if len(self._people) >= self._longest_queue:
            return self._refuse(now, now)
        self._gatekeeper.admit(PEOPLE, EVERY_AGENT, now=now)
        self._people.append(request)
        self._count(now)
        return 0

    def _refuse(self, now: float, release: float) -> int:
        self._room -= self._refusal_cost
        self._unpaid += self._refusal_cost
        if self._unpaid >= 1.0:
            self._unpaid -= 1.0
            self._count(now)
        return self._returns.retry_after(now=now, release=release)

    def _count(self, now: float) -> None:
        """Count one request that the origin has to serve before automated traffic."""
        control = self._account(Accounting(AUTOMATED, Status.ACCEPTED, EVERY_AGENT, now, now), now)
        if control is not None:
            self._gatekeeper.obey(control, now=now)
