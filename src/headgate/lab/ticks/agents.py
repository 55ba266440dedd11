"""Agents in discrete time: when they send a request, and what they do with the response.

An agent neither knows the calendar nor sends: `attempt` returns whether it sends, or after how many seconds it is asked
again; `answered` returns the latter. A comment that begins with "Draws" names each draw of the agent's stream, so that
the kernel can repeat them in their order.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headgate.lab.chance import Draw, exponential
from headgate.lab.policies import AgentView, Headers, Policy
from headgate.lab.ticks.origins import OK
from headgate.lab.ticks.settings import AgentGroup, Interactive, Pollers, Requesters
from headgate.release import NEVER


class Target(Protocol):
    """What agents know about an origin."""

    arrivals: list[AgentView]
    """The agents that send a request in this tick."""
    useful: int
    """Responses that agents could use, which they count."""


class Route(NamedTuple):
    """An origin that an agent requests, and the policy under which it does."""

    origin: Target
    policy: Policy


class Counts:
    """What happened to the attempts of a group, and to the visits of its users."""

    __slots__ = ("answered", "failed", "lost", "refused", "visited")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set all counts to 0."""
        self.refused = 0
        """Attempts that the agent's own policy refused."""
        self.answered = 0
        """Attempts that were answered with 200."""
        self.failed = 0
        """Attempts that were answered with another status."""
        self.visited = 0
        """Visits that were answered within their deadline."""
        self.lost = 0
        """Visits that were not."""

    @property
    def attempts(self) -> int:
        """Attempts whose outcome is known."""
        return self.refused + self.answered + self.failed


class Agent:
    """What all agents have in common: a number, a group, and routes to the origins that they request."""

    __slots__ = (
        "client",
        "counts",
        "draw",
        "failures",
        "group",
        "is_automated",
        "number",
        "origin",
        "policy",
        "routes",
    )

    def __init__(self, number: int, group: AgentGroup, counts: Counts, draw: Draw) -> None:
        self.number = number
        """The number of the agent, unique in its world."""
        self.client = number
        """The number of the client that origins see."""
        self.group = group.name
        """The name of its group."""
        self.is_automated = group.automated
        """Whether a program decides when to send."""
        self.counts = counts
        """The counts of its group."""
        self.draw = draw
        """The stream of its behaviour."""
        self.failures = 0
        """Requests that failed since the last one that did not."""
        self.routes: Sequence[Route] = ()

    def use(self, routes: Sequence[Route], client: int) -> None:
        """Set the origins that it requests, each with its policy, and the client that they see."""
        self.routes = routes
        self.client = client
        self.origin, self.policy = routes[0]

    def choose_origin(self) -> None:
        """Choose the origin of the next request; draws one number if there are several."""
        if len(self.routes) > 1:
            self.origin, self.policy = self.routes[int(self.draw() * len(self.routes))]

    def own_pause(self) -> float:
        """Return the seconds after which the agent tries again after a failure, unless its policy says when."""
        return 0.0

    def succeeded(self) -> None:
        """Count a request that was answered with 200."""
        self.counts.answered += 1
        self.origin.useful += 1
        self.failures = 0

    def failed(self, now: float) -> float:
        """Count a failed request; return the seconds until the agent tries again."""
        self.counts.failed += 1
        self.failures += 1
        pause = self.policy.pause(self.failures, now=now)
        return self.own_pause() if pause is None else pause


class Requester(Agent):
    """Is asked in every tick, and sends if its last attempt is longer ago than its interval."""

    __slots__ = ("failing", "interval", "jitter", "last_attempt", "last_success", "perceived_downtime", "waits")

    def __init__(self, number: int, group: Requesters, counts: Counts, draw: Draw, *, now: float) -> None:
        super().__init__(number, group, counts, draw)
        self.interval = group.interval
        self.jitter = group.jitter
        # Draws the start.
        self.last_attempt = now + group.start * draw() - group.interval
        self.last_success = now
        self.failing = False
        self.waits = False
        """Whether a request is under way; until it is answered, the agent sends no other."""
        self.perceived_downtime = 0.0
        """Seconds from the last success before a failure to the first one after it; 0 without one."""

    def attempt(self, now: float) -> bool:
        """Return whether the agent sends a request."""
        interval = self.interval
        if self.jitter:
            # Draws the interval, in every tick.
            interval += self.jitter * (2.0 * self.draw() - 1.0)
        if now - self.last_attempt <= interval or self.waits:
            return False
        self.last_attempt = now
        self.choose_origin()
        if self.policy.release(now=now) > now:
            self.counts.refused += 1
            self.failing = True
            return False
        self.waits = True
        return True

    def answered(self, status: int, headers: Headers, now: float) -> float:
        """Take the response; the agent is asked in every tick, so it is never due by a calendar."""
        self.waits = False
        self.policy.received(status, headers, now=now)
        if status != OK:
            self.counts.failed += 1
            self.failing = True
            return NEVER
        self.counts.answered += 1
        self.origin.useful += 1
        if self.failing:
            self.perceived_downtime = now - self.last_success
        self.failing = False
        self.last_success = now
        return NEVER


class CalendarAgent(Agent, ABC):
    """An agent that says when it is to be asked again."""

    __slots__ = ()

    @abstractmethod
    def first(self) -> float:
        """Return the seconds until the first attempt."""

    @abstractmethod
    def attempt(self, now: float) -> float | None:
        """Return None if the agent sends a request, otherwise the seconds until its next attempt."""

    @abstractmethod
    def answered(self, status: int, headers: Headers, now: float) -> float:
        """Take the response; return the seconds until the next attempt."""


class Poller(CalendarAgent):
    """A program that sends a request, waits for the response, waits for its interval, and sends the next one."""

    __slots__ = ("interval",)

    def __init__(self, number: int, group: Pollers, counts: Counts, draw: Draw) -> None:
        super().__init__(number, group, counts, draw)
        self.interval = group.interval

    def first(self) -> float:
        """Return the seconds until the first attempt."""
        # Draws the phase.
        return self.interval * self.draw()

    def own_pause(self) -> float:
        """Return the interval."""
        return self.interval

    def attempt(self, now: float) -> float | None:
        """Return None if the agent sends a request, otherwise the seconds until its next attempt."""
        self.choose_origin()
        release = self.policy.release(now=now)
        if release > now:
            self.counts.refused += 1
            return max(release - now, self.interval)
        return None

    def answered(self, status: int, headers: Headers, now: float) -> float:
        """Take the response; return the seconds until the next attempt."""
        self.policy.received(status, headers, now=now)
        if status == OK:
            self.succeeded()
            return self.interval
        return self.failed(now)


class User(CalendarAgent):
    """A person who visits a page, tries again if it fails, and gives up after a deadline."""

    __slots__ = ("deadline", "patience", "retry", "think")

    def __init__(self, number: int, group: Interactive, counts: Counts, draw: Draw) -> None:
        super().__init__(number, group, counts, draw)
        self.think = group.think
        self.patience = group.deadline
        self.retry = group.retry
        self.deadline = NEVER
        """When the user gives up; `NEVER` between visits."""

    def first(self) -> float:
        """Return the seconds until the first visit."""
        return self._thinks()

    def attempt(self, now: float) -> float | None:
        """Return None if the user's browser sends a request, otherwise the seconds until the next attempt."""
        if self.deadline == NEVER:
            self.deadline = now + self.patience
            self.choose_origin()
        release = self.policy.release(now=now)
        if release > now:
            self.counts.refused += 1
            return self._tries_again(max(release - now, self.own_pause()), now)
        return None

    def answered(self, status: int, headers: Headers, now: float) -> float:
        """Take the response; return the seconds until the next attempt."""
        self.policy.received(status, headers, now=now)
        if status == OK:
            self.counts.answered += 1
            if now > self.deadline:
                return self._gives_up(now)
            self.counts.visited += 1
            self.origin.useful += 1
            self.failures = 0
            self.deadline = NEVER
            return self._thinks()
        return self._tries_again(self.failed(now), now)

    def _tries_again(self, seconds: float, now: float) -> float:
        return seconds if now + seconds < self.deadline else self._gives_up(now)

    def _gives_up(self, now: float) -> float:
        """End the visit at its deadline; return the seconds until the next one."""
        self.counts.lost += 1
        left = max(self.deadline - now, 0.0)
        self.failures = 0
        self.deadline = NEVER
        return left + self._thinks()

    def own_pause(self) -> float:
        """Return the seconds until the user tries again."""
        # Draws the pause.
        shortest, longest = self.retry
        return shortest + (longest - shortest) * self.draw()

    def _thinks(self) -> float:
        # Draws the time to think.
        return exponential(self.think, self.draw)
