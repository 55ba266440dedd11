"""The state of a router: read by its process, written as JSON or as metrics.

As in the state of a gate, totals only grow. No label of a metric names a domain: peers choose those.
"""

from collections.abc import Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.observe.state import counter_metrics

_HELP = {
    "router_accounted": "Accounting messages and records received.",
    "router_bad_batch": "Batches dropped: malformed.",
    "router_bad_domain": "Accounting dropped: its first frame is not the name of a domain.",
    "router_bad_record": "Records of batches dropped: malformed.",
    "router_bad_timestamp": "Accounting dropped: invalid timestamp.",
    "router_batches": "Batches of accounting received.",
    "router_excess_frames": "Frames ignored: more than an accounting message has.",
    "router_failed_handshakes": "Connections to gatekeepers and masters whose handshake failed.",
    "router_malformed": "Malformed control messages dropped.",
    "router_refused_keys": "Connections refused: the key of the gatekeeper is not allowed.",
    "router_resent": "Records passed on that gatekeepers sent again to a master without a history.",
    "router_subscriptions": "Subscriptions of gatekeepers received.",
    "router_too_long": "Accounting dropped: identifier over 255 bytes.",
    "router_too_short": "Accounting dropped: fewer than five frames.",
    "router_unheard": "Accounting dropped: no master reads its domain.",
    "router_unowned": "Records sent again dropped: the master they are for does not own them.",
    "router_unknown_status": "Accounting dropped: unknown status.",
}


class RoutedMasterState(msgspec.Struct, frozen=True):
    """One master of a router."""

    address: str
    """Its address as written in the configuration."""
    up: bool = False
    """Whether it is connected."""
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
    """The address of its master; empty if no master reads it, and if its identifiers have masters of their own."""


class RouterState(msgspec.Struct, frozen=True):
    """One router."""

    masters: tuple[RoutedMasterState, ...] = ()
    domains: tuple[RoutedDomain, ...] = ()
    """The domains whose accounting was received, at most 1000."""
    shard: str = "domain"
    """What has one master: domain or identifier."""
    started: float = 0.0
    """Time of the start, seconds since 1970."""
    counters: dict[str, int] = {}
    """Further totals by the name of their metric."""


def router_metrics(state: RouterState) -> Iterator[Metric]:
    """Make the metrics of a router."""
    up = GaugeMetricFamily("headgate_router_master_up", "1 if the master is connected, else 0.", labels=["master"])
    for master in state.masters:
        up.add_metric([master.address], master.up)
    yield up
    for name, text in (
        ("sent", "Accounting messages and records sent to the master."),
        ("dropped", "Accounting messages and records dropped: the queue of the master was full."),
        ("controls", "Control messages received from the master and passed on."),
    ):
        family = CounterMetricFamily(f"headgate_router_{name}", text, labels=["master"])
        for master in state.masters:
            family.add_metric([master.address], getattr(master, name))
        yield family
    yield GaugeMetricFamily("headgate_router_domains", "Domains whose accounting was received.", len(state.domains))
    yield from counter_metrics(state.counters, _HELP)
