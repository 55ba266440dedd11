"""Stand-ins for what a world gives to policies: agents and origins."""

from dataclasses import dataclass, field

from headgate.lab.chance import Chance
from headgate.lab.policies import OriginPolicy, Policy

NOW = 1_700_000_000.0


@dataclass(eq=False)
class AgentStub:
    """An agent of one group."""

    number: int = 0
    group: str = "heavy"
    is_automated: bool = True

    def own_pause(self) -> float:
        """Return the interval of a poller."""
        return 2.0


@dataclass(eq=False)
class OriginStub:
    """An origin that is up or down."""

    name: str = "site"
    url: str = "http://site.example/resource"
    capacity: float = 100.0
    tick: float = 1.0
    refusal_cost: float = 0.25
    down: bool = False
    policy: OriginPolicy = field(init=False)

    def is_down(self, now: float) -> bool:
        """Return whether the origin is down."""
        del now
        return self.down


def origin_under(policy: type[Policy], *, seed: int = 1, **fields: object) -> OriginStub:
    """Return an origin whose operator does what the policy says."""
    origin = OriginStub(**fields)  # type: ignore[arg-type]  # the fields of the stub
    origin.policy = policy.origin_policy(origin, Chance(seed).stream("gate"))
    return origin
