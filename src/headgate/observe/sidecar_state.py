"""The state of a sidecar: read by its process, written as JSON or as metrics.

As in the state of a gate, totals only grow. No label of a metric names an identifier.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

from headgate.observe.state import GATEKEEPER_HELP, DomainState, counter_metrics, domain_totals

_HELP = {
    **GATEKEEPER_HELP,
    "sidecar_connections": "Connections of the server.",
    "sidecar_disconnected": "auth_request: delayed requests whose client disconnected.",
    "sidecar_dropped_connections": "auth_request, HAProxy: connections closed: too many, malformed or late.",
    "sidecar_errors": "HAProxy: exchanges with its runtime socket that failed.",
    "sidecar_haproxy_dropped": "HAProxy: requests not reported: the sidecar was not running, or too slow.",
    "sidecar_holds_sent": "Holds sent to the server one by one.",
    "sidecar_left_out": "HAProxy: holds for which its map had no space.",
    "sidecar_malformed": "Malformed messages of the server.",
    "sidecar_refused": "Connections of the server refused: too many.",
    "sidecar_requests": "auth_request: requests of nginx.",
    "sidecar_synchronizations": "Times that all holds in force were sent to the server.",
    "sidecar_unknown_domain": "nginx with Lua: reports dropped: their domain is not one of the sidecar's.",
    "sidecar_unresponsive": "nginx with Lua: connections closed: the worker sent or read nothing.",
    "sidecar_worker_dropped": "nginx with Lua: requests not reported: the sidecar was not running, or too slow.",
    "sidecar_worker_evicted": "nginx with Lua: holds for which its dictionary had no space.",
}
"""Descriptions of the counters; those of the data planes begin with sidecar_."""


class SidecarMasterState(msgspec.Struct, frozen=True):
    """One master of a sidecar."""

    address: str
    """Its address as written in the configuration."""
    up: bool = False
    """Whether it is connected."""


class SidecarState(msgspec.Struct, frozen=True):
    """One sidecar."""

    server: str
    """The kind of its server: nginx-lua, auth-request or haproxy."""
    socket: str = ""
    """The unix socket between the sidecar and its server."""
    domains: tuple[DomainState, ...] = ()
    masters: tuple[SidecarMasterState, ...] = ()
    details: dict[str, Any] = {}
    """Further facts about the server, such as its connections."""
    started: float = 0.0
    """Time of the start, seconds since 1970."""
    counters: dict[str, int] = {}
    """Further totals by the name of their metric."""


def sidecar_metrics(state: SidecarState) -> Iterator[Metric]:
    """Make the metrics of a sidecar."""
    yield domain_totals("headgate_requests", "Requests by domain and outcome.", state.domains)
    up = GaugeMetricFamily("headgate_master_up", "1 if the master is connected, else 0.", labels=["master"])
    for master in state.masters:
        up.add_metric([master.address], master.up)
    yield up
    yield from counter_metrics(state.counters, _HELP)
