"""What all parts of one gateway share: the settings that a reload changes for all of them, counters, and clock."""

import time
from collections.abc import Callable

from headgate.config.tree import Gate
from headgate.http.h1 import RequestLimits
from headgate.origin.gateway.record import GatewayCounters

DRAIN_IDLE_TIMEOUT = 1.0
"""Seconds that a connection is kept in a drain for a request that may be on its way."""


class GatewaySettings:
    """Settings from `gate`, the counters since the start, and the clock of all deadlines."""

    def __init__(self, gate: Gate, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.counters = GatewayCounters()
        """The counters since the start."""
        self.clock = clock
        """Returns the seconds of the clock of all deadlines."""
        self.draining = False
        """Whether the gateway stops: responses end their connections, and say so."""
        self.configure(gate)

    def configure(self, gate: Gate) -> None:
        """Put other settings in force for further requests and connections, but for the space of buffers."""
        bounds = self.bounds = gate.bounds
        self.timeouts = gate.timeouts
        self.limits = RequestLimits(bounds.target_bytes, bounds.head_bytes, bounds.max_body, bounds.head_fields)
        """Those of `bounds` for the parser."""
        self.buffer_requests = gate.buffer_requests
        self.buffer_response = gate.buffer_response
        self.idle_timeout = DRAIN_IDLE_TIMEOUT if self.draining else gate.timeouts.idle
        """Seconds that a connection is kept for the next request; fewer when the gateway stops."""
