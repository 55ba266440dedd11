"""Traffic advice alone: the origin publishes which fraction of automated traffic it wants, and automated agents obey.

The document is what a publisher writes, each agent reads it with the parser and draws for every request. The fractions
come from the controller, which knows the capacity and learns the load. The server stands without a gate, and requests
of people are not affected.

Agents and origin use a max-age of a minute, a tenth of the suggested minimum: the lab compresses time, so that a
warm-up of ten minutes contains ten generations of advice.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from headgate.advice import AgentIdentity
from headgate.advice.controller import AgentClass, Controller, Settings
from headgate.advice.decision import permits
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse, interpret
from headgate.advice.identity import EVERY_AGENT
from headgate.advice.parser import UNREACHABLE, AdviceEntry, AdviceResult
from headgate.advice.publisher import MEDIA_TYPE, document
from headgate.lab.policies import Admission, AgentView, Draw, OriginPolicy, OriginView, Policy
from headgate.release import ASAP, NEVER

MAX_AGE: Final = 60.0
"""Seconds that agents obey what they fetched."""
PERIOD: Final = 10.0
"""Seconds between two decisions on the fraction."""
_FIELDS: Final = (("Content-Type", MEDIA_TYPE), ("Cache-Control", f"max-age={MAX_AGE:.0f}"))
_IDENTITY: Final = AgentIdentity.of("LabPoller")


class AdviceResource:
    """The document of an origin, and the controller that computes it from what arrives."""

    def __init__(self, capacity: float) -> None:
        settings = Settings(capacity, classes=(AgentClass(EVERY_AGENT),), period=PERIOD, max_age=MAX_AGE)
        self._controller = Controller(settings)
        self._response = self._respond()

    @property
    def fraction(self) -> float:
        """The published fraction; 0 if all automated traffic is disallowed."""
        return self._controller.explain()[0].fraction

    def fetch(self, agent: int, *, now: float) -> AdviceResponse:
        """Return the response to an agent's fetch, and record what it was served."""
        self._controller.fetched(EVERY_AGENT, agent, now=now)
        return self._response

    def arrived(self, agents: Sequence[AgentView], *, now: float, frozen: bool = False) -> None:
        """Count the requests of a tick; publish a new document if a period has ended.

        `frozen` while the server is down, and requests show how agents wait instead of what they want.
        """
        for agent in agents:
            if agent.is_automated:
                self._controller.arrived(EVERY_AGENT, agent.number)
            else:
                self._controller.arrived(None)
        before = self._controller.entries
        if self._controller.update(now=now, frozen=frozen) != before:
            self._response = self._respond()

    def _respond(self) -> AdviceResponse:
        return AdviceResponse(200, _FIELDS, document(self._controller.entries))


class AdvisedOrigin(OriginPolicy):
    """An origin that publishes advice from the server itself: while it is down, nothing is served."""

    def __init__(self, origin: OriginView, draw: Draw) -> None:
        super().__init__(origin, draw)
        self.advice = AdviceResource(origin.capacity)
        """What it publishes."""

    def fetch_advice(self, agent: int, *, now: float) -> AdviceResponse:
        """Return the response to a fetch of the advice."""
        return NETWORK_ERROR if self.origin.is_down(now) else self.advice.fetch(agent, now=now)

    def admit(self, arrivals: Sequence[AgentView], *, now: float) -> Admission:
        """Count the requests, and admit all of them."""
        self.advice.arrived(arrivals, now=now, frozen=self.origin.is_down(now))
        return Admission(arrivals)

    def signals(self) -> Mapping[str, float]:
        """Record the published fraction."""
        return {"fraction": self.advice.fraction}


class AdviceReader:
    """The advice as one agent knows it.

    Before its first fetch it is not restricted: the site has just begun to publish. The first fetch is at a random time
    within one max-age, as agents have looked for advice before; in step they would all obey each change at one instant.
    """

    def __init__(self, agent: int, origin: AdvisedOrigin, draw: Draw, *, now: float) -> None:
        self._agent = agent
        self._origin = origin
        self._draw = draw
        self._entry: AdviceEntry | None = None
        self._fresh_until = now + MAX_AGE * draw()

    def permits(self, *, now: float) -> bool:
        """Return whether a request is permitted at `now`; fetch the advice if it is stale, and draw."""
        if now >= self._fresh_until:
            self._fetch(now)
        return self._entry is None or permits(self._entry, self._draw())

    def _fetch(self, now: float) -> None:
        result: AdviceResult = interpret(self._origin.fetch_advice(self._agent, now=now), _IDENTITY)
        self._fresh_until = now + MAX_AGE
        if result is not UNREACHABLE:  # of an unreachable origin the last entry applies
            self._entry = result


class Advice(Policy):
    """Automated agents obey the advice; people do as they like."""

    def __init__(self, agent: AgentView, origin: OriginView, draw: Draw) -> None:
        super().__init__(agent, origin, draw)
        self._reader: AdviceReader | None = None

    @classmethod
    def origin_policy(cls, origin: OriginView, draw: Draw) -> OriginPolicy:
        """Publish advice."""
        return AdvisedOrigin(origin, draw)

    def release(self, *, now: float) -> float:
        """Return `ASAP` for a request that the advice permits; others wait for the agent's next own attempt."""
        return ASAP if not self.agent.is_automated or self.permitted(now) else math.nextafter(now, NEVER)

    def permitted(self, now: float) -> bool:
        """Return whether the advice permits a request of this automated agent."""
        if self._reader is None:
            origin = self.origin.policy
            assert isinstance(origin, AdvisedOrigin)  # `origin_policy` made it
            self._reader = AdviceReader(self.agent.number, origin, self.draw, now=now)
        return self._reader.permits(now=now)
