"""The state of a master: read by its process, written as JSON or as metrics.

As in the state of a gate, totals only grow, and no label of a metric names an identifier.
"""

from collections.abc import Iterator

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

from headgate.limit import Master
from headgate.observe.state import MASTER_HELP, DomainState, counter_metrics, domain_totals

_HELP = {
    **MASTER_HELP,
    "accounting_late": "Accounting older than a minute, counted as a minute old.",
    "accounting_shortened": "Accounting with a delay longer than master.max_hold, shortened.",
    "accounting_unknown": "Accounting dropped: unknown domain.",
    "snapshots_failed": "Snapshots that could not be saved.",
    "snapshots_saved": "Snapshots saved.",
    "bus_accounted": "Accounting messages and records read, including those for unknown domains.",
    "bus_bad_batch": "Batches dropped: malformed.",
    "bus_bad_record": "Records of batches dropped: malformed.",
    "bus_bad_timestamp": "Accounting dropped: invalid timestamp.",
    "bus_batches": "Batches of accounting read.",
    "bus_controls": "Control messages published.",
    "bus_excess_frames": "Frames ignored: more than an accounting message has.",
    "bus_failed_handshakes": "Connections that failed their handshake: no CURVE, another server key, or malformed.",
    "bus_refused_keys": "Connections refused: key not allowed.",
    "bus_resent": "Control messages published again for a new subscription.",
    "bus_resent_dropped": "Batches sent again that were dropped: too many were waiting.",
    "bus_resent_records": "Accounting sent again, because this master had not received it.",
    "bus_subscriptions": "Subscriptions of gatekeepers received.",
    "bus_too_long": "Accounting dropped: identifier over 255 bytes.",
    "bus_too_short": "Accounting dropped: fewer than five frames.",
    "quota_abandoned": "Idle buckets that Envoys were told to forget.",
    "quota_assignments": "Assignments sent to Envoys.",
    "quota_malformed": "Usage reports of Envoys dropped: malformed.",
    "quota_reports": "Usage reports of buckets read from Envoys.",
    "quota_streams": "Streams of Envoys opened.",
    "quota_streams_refused": "Streams of Envoys refused: too many were open.",
    "quota_unassignable": "Usage reports of buckets with a value that is not UTF-8: counted, but never assigned to.",
    "quota_untracked": "Usage reports of buckets that were counted only: the table was full.",
    "bus_unknown_status": "Accounting dropped: unknown status.",
}


class MasterDomainState(DomainState, frozen=True):
    """One domain of a master."""

    identifiers: int = 0
    """Identifiers stored."""
    holds: int = 0
    """Holds in force."""


class AccountingAge(msgspec.Struct, frozen=True):
    """Seconds from the receipt of a request, by the gatekeeper's clock, to the arrival of its accounting, by this one.

    That is the delay of the network minus the lead of the gatekeeper's clock: `min` is negative if a clock is ahead.
    """

    min: float
    max: float


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
    started: float = 0.0
    """Time of the start, seconds since 1970."""
    identifiers: int = 0
    """Identifiers stored, over all domains."""
    accounting_age: AccountingAge | None = None
    """The extremes of the last minute; None without accounting."""
    store: str = "memory"
    """Where histories are: memory, or the state of the store that is shared with other masters."""
    snapshot_saved: float = 0.0
    """Time of the last snapshot, also of the one that was restored; seconds since 1970, 0 for none."""
    quotas: QuotaState | None = None
    """The quota service; None if it is off."""
    counters: dict[str, int] = {}
    """Further totals by the name of their metric."""


def master_counters(master: Master) -> dict[str, int]:
    """Return the counters of a master of this process, or within a gate, by the names of their metrics."""
    return {
        "accounting_ahead": master.ahead,
        "histories_evicted": master.evicted,
        "shadowed": master.shadowed,
    }


def master_metrics(state: MasterState) -> Iterator[Metric]:
    """Make the metrics of a master."""
    yield domain_totals("headgate_master_requests", "Requests in accounting, by domain and outcome.", state.domains)
    stored = GaugeMetricFamily("headgate_master_identifiers", "Identifiers stored, by domain.", labels=["domain"])
    for domain in state.domains:
        stored.add_metric([domain.label], domain.identifiers)
    yield stored
    yield from _ages(state.accounting_age)
    yield GaugeMetricFamily(
        "headgate_master_snapshot_time_seconds",
        "Time of the last snapshot in seconds since 1970, 0 for none.",
        state.snapshot_saved,
    )
    if state.quotas is not None:
        yield GaugeMetricFamily("headgate_quota_envoys", "Envoys that are connected.", state.quotas.streams)
        yield GaugeMetricFamily("headgate_quota_buckets", "Buckets of connected Envoys.", state.quotas.buckets)
    yield from counter_metrics(state.counters, _HELP)


def _ages(age: AccountingAge | None) -> Iterator[Metric]:
    meaning = "seconds from the receipt of a request, by the gatekeeper's clock, to the arrival of its accounting"
    for word, extreme in (("Smallest", "min"), ("Largest", "max")):
        name = f"headgate_master_accounting_age_{extreme}_seconds"
        value = None if age is None else getattr(age, extreme)
        yield GaugeMetricFamily(name, f"{word} number of {meaning}, in the last minute.", value)
