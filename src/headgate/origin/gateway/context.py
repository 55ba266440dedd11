"""What all connections of a gateway share: settings, the policy in force, the pool, the clock, the counts."""

from collections import Counter
from collections.abc import Callable

from headgate.config.tree import Timeouts
from headgate.http.h1 import RequestLimits
from headgate.origin.gateway.connection_registry import ConnectionRegistry
from headgate.origin.gateway.policy import Policy
from headgate.origin.gateway.responses import ALLOW
from headgate.origin.gateway.states import GATEWAY_TRANSITIONS, GatewayEvent, GatewayState
from headgate.origin.gateway.upstream import UpstreamPool


class GatewayContext:
    """Made once by a gateway and given to each of its connections."""

    def __init__(
        self,
        policy: Policy,
        pool: UpstreamPool,
        registry: ConnectionRegistry,
        *,
        timeouts: Timeouts,
        limits: RequestLimits,
        observe: Callable[[str], None] | None = None,
    ) -> None:
        self.policy = policy
        """What requests are decided by; it may be replaced at any time."""
        self.pool = pool
        self.registry = registry
        self.timeouts = timeouts
        self.limits = limits
        self.allow = ALLOW
        """The value of Allow in a response to a method that is never served."""
        self.state = GatewayState.NEW
        self.now = 0.0
        """Seconds of a coarse clock, moved on by the gateway's tick."""
        self.counts: Counter[str] = Counter()
        """How often each unusual event happened."""
        self._observe = observe

    @property
    def draining(self) -> bool:
        """Whether the gateway stops: no connection outlives the response under way."""
        return self.state is GatewayState.DRAINING or self.state is GatewayState.STOPPED

    def move(self, event: GatewayEvent) -> None:
        """Change the state; raises `RuntimeError` for an event that is not possible in the present one."""
        following = GATEWAY_TRANSITIONS[self.state].get(event)
        if following is None:
            raise RuntimeError(f"gateway: {event.name.lower()} is not possible once it is {self.state.name.lower()}")
        self.state = following

    def note(self, event: str) -> None:
        """Count an unusual event."""
        self.counts[event] += 1
        if self._observe is not None:
            self._observe(event)
