"""The state of a router: read by its process, written as JSON or as metrics.

As in the state of a gate, totals only grow. No label of a metric names a domain: peers choose those.
"""

from collections.abc import Iterator

import msgspec
from prometheus_client.core import Metric

from headgate.observe.metrics import CounterGroups, Counters, counter, counter_metrics, gauge
from headgate.observe.state import LinkedMasterState

_TRAFFIC = {
    "sent": "Accounting messages and records sent to the master.",
    "dropped": "Accounting messages and records dropped: the queue of the master was full.",
    "controls": "Control messages received from the master and passed on.",
}


class RoutedMasterState(LinkedMasterState, frozen=True):
    """One master of a router."""

    sent: int = 0
    """Accounting messages and records sent to it."""
    dropped: int = 0
    """Accounting messages and records dropped because its queue was full."""
    controls: int = 0
    """Control messages received from it and passed on."""


class RoutedDomain(msgspec.Struct, frozen=True):
    """One domain whose accounting was received."""

    name: str
    """Its name; bytes that are not UTF-8 are escaped with a backslash."""
    master: str
    """The address of its master; empty if none is connected."""


class RouterState(msgspec.Struct, frozen=True):
    """One router."""

    masters: tuple[RoutedMasterState, ...] = ()
    domains: tuple[RoutedDomain, ...] = ()
    """The domains whose accounting was received, at most 1024."""
    gatekeepers: dict[str, int] = {}
    """Connected gatekeepers and routers by the name of their key; "none" without CURVE."""
    started: float = 0.0
    """Time of the start, seconds since 1970."""
    counters: Counters = {}
    """Further totals; see `headgate.observe.metrics`."""


def router_metrics(state: RouterState, groups: CounterGroups) -> Iterator[Metric]:
    """Make the metrics of a router with these groups of counters."""

    def by_master(name: str) -> dict[str, float]:
        return {master.address: getattr(master, name) for master in state.masters}

    yield gauge("headgate_router_master_up", "1 if the master is connected, else 0.", by_master("up"), "master")
    for name, text in _TRAFFIC.items():
        yield counter(f"headgate_router_{name}", text, by_master(name), "master")
    yield gauge(
        "headgate_router_gates",
        "Connected gatekeepers, a process each, and routers, by the names of their keys.",
        state.gatekeepers,
        "key",
    )
    yield gauge("headgate_router_domains", "Domains whose accounting was received.", len(state.domains))
    yield from counter_metrics(state.counters, groups)
