"""What agents and origins do under a policy: the base classes, and the policies of the package by name.

A policy of your own is a class of about ten lines; every method is optional:

    from headgate.lab.policies import Policy

    class MinuteOfRest(Policy):
        until = 0.0

        def release(self, *, now):
            return self.until

        def received(self, status, headers, *, now):
            if status >= 500:
                self.until = now + 60 * (0.5 + self.draw())

A scenario names it as `"mine.py:MinuteOfRest"` (a file beside the scenario) or `"package.module:MinuteOfRest"`.

How the world calls it. Each agent has one object of the class for each origin that it uses; clients behind one proxy
share theirs. Before a request, `release` says when it may be sent. If that is later than `now`, the attempt is a local
refusal, and the agent comes back then. When the response arrives, `received` is called with its status and fields.
After a failure (any status but 200), `pause` says after how many seconds the agent tries again. Instants are seconds
since 1970, and `draw` is the policy's own stream of random numbers from [0, 1): other agents and other policies meet
the same world however often it is called.

What the origin's operator does under the policy, such as a gate before the server or traffic advice, is in an
`OriginPolicy`, which `Policy.origin_policy` creates. There is one for each origin. The agents' policies reach it as
`origin.policy`, for example to fetch what it publishes.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from headgate.lab.chance import Draw
from headgate.release import ASAP

__all__ = ["NO_FIELDS", "Admission", "AgentView", "Answer", "Draw", "Headers", "OriginPolicy", "OriginView", "Policy"]

Headers: TypeAlias = Sequence[tuple[str, str]]
"""The fields of a response: names and values."""

NO_FIELDS: Final[Headers] = ()
"""The fields of a response without any that matters."""


class AgentView(Protocol):
    """What policies know about an agent, and about the request that it has sent."""

    @property
    def number(self) -> int:
        """The number of the agent, from 0, unique in its world."""

    @property
    def client(self) -> int:
        """The number of the client that origins see: of agents behind one address, that of the first."""

    @property
    def group(self) -> str:
        """The name of its group in the scenario."""

    @property
    def is_automated(self) -> bool:
        """Whether a program decides when to send; False for people."""

    def own_pause(self) -> float:
        """Return the seconds after which the agent tries again by itself after a failure; may draw them."""


class OriginView(Protocol):
    """What policies know about an origin."""

    @property
    def name(self) -> str:
        """Its name in the scenario."""

    @property
    def url(self) -> str:
        """The URL that agents request."""

    @property
    def capacity(self) -> float:
        """Requests that it can serve in a second."""

    @property
    def tick(self) -> float:
        """Seconds between two calls of `OriginPolicy.admit`."""

    @property
    def refusal_cost(self) -> float:
        """What a refusal costs it, as a share of a request that it serves."""

    @property
    def policy(self) -> "OriginPolicy":
        """What its operator does under the policy."""

    def is_down(self, now: float) -> bool:
        """Return whether the server behind its gate is down."""


Answer: TypeAlias = tuple[AgentView, int, Headers]
"""The response to the request of an agent: its status and fields."""


class Admission(NamedTuple):
    """What a gate decides on the requests of one tick."""

    admitted: Sequence[AgentView]
    """Requests for the server; those that were delayed until now included."""
    refused: Sequence[Answer] = ()
    """Responses of the gate. Each costs the origin what a refusal costs (`OriginView.refusal_cost`)."""


class OriginPolicy:
    """What an origin does under a policy. This one has no gate and publishes nothing."""

    def __init__(self, origin: OriginView, draw: Draw) -> None:
        self.origin = origin
        """The origin."""
        self.draw = draw
        """Random numbers of this gate."""

    def admit(self, arrivals: Sequence[AgentView], *, now: float) -> Admission:  # noqa: ARG002 - the protocol
        """Decide on the requests that arrive in a tick; called in every tick.

        A request that is neither admitted nor refused is delayed: admit or refuse it in a later tick.
        """
        return Admission(arrivals)

    def answer(self, agent: AgentView, status: int, headers: Headers, *, now: float) -> Answer:  # noqa: ARG002 - the protocol
        """Return what an agent receives for a response of the server, which is down if `origin.is_down(now)`."""
        return agent, status, headers

    def signals(self) -> Mapping[str, float]:
        """Return values to record in each tick, such as the published fraction."""
        return {}


class Policy:
    """What an agent does under a policy. This one, `none`, never holds a request."""

    def __init__(self, agent: AgentView, origin: OriginView, draw: Draw) -> None:
        self.agent = agent
        """The agent; of several that share this object, the first."""
        self.origin = origin
        """The origin of its requests."""
        self.draw = draw
        """Random numbers of this policy and agent."""

    @classmethod
    def origin_policy(cls, origin: OriginView, draw: Draw) -> OriginPolicy:
        """Return what the operator of an origin does under this policy."""
        return OriginPolicy(origin, draw)

    def release(self, *, now: float) -> float:  # noqa: ARG002 - for subclasses
        """Return the instant before which no request must be sent; `ASAP`, or one not after `now`, to send it now."""
        return ASAP

    def received(self, status: int, headers: Headers, *, now: float) -> None:
        """Take notice of a response."""

    def pause(self, failures: int, *, now: float) -> float | None:  # noqa: ARG002 - for subclasses
        """Return the seconds until the agent tries again after `failures` in a row; None for the agent's own pause."""
        return None
