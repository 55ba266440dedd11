"""Everything together: agents throttle and obey advice, the origin publishes it and has a gate.

The gate forwards people's requests first, delays automated ones by up to five seconds, and refuses the rest with 429
and a `Retry-After` that is computed from the backlog. While the server is down it answers 502, which counts for no
throttle, and a `Retry-After` by the same rule. One configuration serves every load: only the capacity is known.
"""

from collections.abc import Sequence

from headgate import throttle
from headgate.advice.fetching import AdviceResponse
from headgate.lab.policies import Admission, AgentView, Answer, Draw, Headers, OriginPolicy, OriginView
from headgate.lab.policies.advice import Advice, AdvisedOrigin
from headgate.lab.policies.gate import Gate


class GatedOrigin(AdvisedOrigin):
    """An origin behind a gate, which also serves the advice, so that it is served while the server is down."""

    def __init__(self, origin: OriginView, draw: Draw) -> None:
        super().__init__(origin, draw)
        self._gate: Gate[AgentView] = Gate(origin.capacity, refusal_cost=origin.refusal_cost, draw=draw)

    def fetch_advice(self, agent: int, *, now: float) -> AdviceResponse:
        """Return the response to a fetch of the advice."""
        return self.advice.fetch(agent, now=now)

    def admit(self, arrivals: Sequence[AgentView], *, now: float) -> Admission:
        """Queue or refuse what arrives; admit what is due."""
        self.advice.arrived(arrivals, now=now, frozen=self.origin.is_down(now))
        refused = []
        for agent in arrivals:
            seconds = self._gate.admit(agent, is_automated=agent.is_automated, now=now)
            if seconds:
                refused.append(_refusal(agent, 429, seconds))
        tick = self.origin.tick
        return Admission(self._gate.forward(until=now + tick, seconds=tick), refused)

    def answer(self, agent: AgentView, status: int, headers: Headers, *, now: float) -> Answer:
        """Answer 502 for a server that is down."""
        if not self.origin.is_down(now):
            return agent, status, headers
        return _refusal(agent, 502, self._gate.retry_after(now=now))


class Together(Advice):
    """An agent with the throttle and, if it is automated, the advice."""

    def __init__(self, agent: AgentView, origin: OriginView, draw: Draw) -> None:
        super().__init__(agent, origin, draw)
        self.throttle = throttle.Throttle(draw=draw)
        """The throttle of this agent."""
        target = self.throttle.target(origin.url)
        assert target is not None  # the URL of an origin is an http URL
        self._target = target

    @classmethod
    def origin_policy(cls, origin: OriginView, draw: Draw) -> OriginPolicy:
        """Put a gate before the server, and publish advice."""
        return GatedOrigin(origin, draw)

    def release(self, *, now: float) -> float:
        """Return the release time of the throttle; of a request that it permits, that of the advice."""
        held = self.throttle.release_time(self._target, now=now)
        return held if held > now else super().release(now=now)

    def received(self, status: int, headers: Headers, *, now: float) -> None:
        """Count the response in the throttle, which obeys its `Retry-After`."""
        self.throttle.response_received(self._target, status, headers, now=now)

    def pause(self, failures: int, *, now: float) -> float | None:  # noqa: ARG002 - a `Policy`
        """Wait for the release time too, instead of an attempt before it that would be refused."""
        held = self.throttle.release_time(self._target, now=now)
        return max(held - now, self.agent.own_pause()) if held > now else None


def _refusal(agent: AgentView, status: int, seconds: int) -> Answer:
    return agent, status, (("Retry-After", str(seconds)),)
