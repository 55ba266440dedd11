"""The state of a sidecar: read by its process, written as JSON or as metrics.

As in the state of a gate, totals only grow. No label of a metric names an identifier.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from prometheus_client.core import Metric

from headgate.observe.metrics import CounterGroups, Counters, counter_metrics
from headgate.observe.state import DomainState, LinkedMasterState, domain_totals, gatekeeper_gauges


class SidecarState(msgspec.Struct, frozen=True):
    """One sidecar."""

    server: str
    """The kind of its server: nginx-lua, auth-request or haproxy."""
    socket: str = ""
    """The unix socket between the sidecar and its server."""
    domains: tuple[DomainState, ...] = ()
    masters: tuple[LinkedMasterState, ...] = ()
    details: dict[str, Any] = {}
    """Further facts about the server, such as its connections."""
    started: float = 0.0
    """Time of the start, seconds since 1970."""
    counters: Counters = {}
    """Further totals; see `headgate.observe.metrics`."""


def sidecar_metrics(state: SidecarState, groups: CounterGroups) -> Iterator[Metric]:
    """Make the metrics of a sidecar with these groups of counters."""
    yield domain_totals("headgate_requests", "Requests by domain and outcome.", state.domains)
    yield from gatekeeper_gauges(state.domains, state.masters)
    yield from counter_metrics(state.counters, groups)
