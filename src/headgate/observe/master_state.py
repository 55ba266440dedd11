"""The state of a master: read by its process, written as JSON or as metrics.

As in the state of a gate, totals only grow, and no label of a metric names an identifier.
"""

from collections.abc import Iterator

import msgspec
from prometheus_client.core import Metric

from headgate.observe.metrics import CounterGroups, Counters, counter_metrics, gauge
from headgate.observe.state import DomainState, domain_totals, rules_digests, store_up


class MasterDomainState(DomainState, frozen=True):
    """One domain of a master."""

    identifiers: int = 0
    """Identifiers stored."""


class QuotaState(msgspec.Struct, frozen=True):
    """The quota service of a master."""

    address: str
    """Where Envoys connect to."""
    streams: int = 0
    """Envoys that are connected."""
    buckets: int = 0
    """Buckets of these Envoys, a client each."""


class MasterState(msgspec.Struct, frozen=True):
    """One master."""

    domains: tuple[MasterDomainState, ...] = ()
    gatekeepers: dict[str, int] = {}
    """Connected gatekeepers and routers by the name of their key; "none" without CURVE."""
    started: float = 0.0
    """Time of the start, seconds since 1970."""
    identifiers: int = 0
    """Identifiers stored, over all domains."""
    store: str = "memory"
    """Where histories are: memory, or the state of the store that is shared with other masters."""
    snapshot_saved: float = 0.0
    """Time of the last snapshot, also of the one that was restored; seconds since 1970, 0 for none."""
    quotas: QuotaState | None = None
    """The quota service; None if it is off."""
    counters: Counters = {}
    """Further totals; see `headgate.observe.metrics`."""


def master_metrics(state: MasterState, groups: CounterGroups) -> Iterator[Metric]:
    """Make the metrics of a master with these groups of counters."""
    yield domain_totals("headgate_master_requests", "Requests in accounting, by domain and outcome.", state.domains)
    identifiers = {domain.name: domain.identifiers for domain in state.domains}
    yield gauge("headgate_master_identifiers", "Identifiers stored, by domain.", identifiers, "domain")
    yield gauge(
        "headgate_master_gates",
        "Connected gatekeepers, a process each, and routers, by the names of their keys.",
        state.gatekeepers,
        "key",
    )
    yield rules_digests(state.domains)
    yield from store_up(state.store)
    text = "Time of the last snapshot in seconds since 1970, 0 for none."
    yield gauge("headgate_master_snapshot_timestamp_seconds", text, state.snapshot_saved)
    if state.quotas is not None:
        yield gauge("headgate_quota_envoys", "Envoys that are connected.", state.quotas.streams)
        yield gauge("headgate_quota_buckets", "Buckets of connected Envoys.", state.quotas.buckets)
    yield from counter_metrics(state.counters, groups)
