"""The state of a master: read by its process, written as JSON or as metrics.

As in the state of a gate, totals only grow, and no label of a metric names an identifier.
"""

import math
from collections.abc import Iterator

import msgspec
from prometheus_client.core import Metric

from headgate.observe.metrics import CounterGroups, Counters, counter_metrics, gauge
from headgate.observe.state import DomainState, domain_totals


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
    counters: Counters = {}
    """Further totals; see `headgate.observe.metrics`."""


def master_metrics(state: MasterState, groups: CounterGroups) -> Iterator[Metric]:
    """Make the metrics of a master with these groups of counters."""
    yield domain_totals("headgate_master_requests", "Requests in accounting, by domain and outcome.", state.domains)
    identifiers = {domain.name: domain.identifiers for domain in state.domains}
    yield gauge("headgate_master_identifiers", "Identifiers stored, by domain.", identifiers, "domain")
    yield from _ages(state.accounting_age)
    text = "Time of the last snapshot in seconds since 1970, 0 for none."
    yield gauge("headgate_master_snapshot_time_seconds", text, state.snapshot_saved)
    if state.quotas is not None:
        yield gauge("headgate_quota_envoys", "Envoys that are connected.", state.quotas.streams)
        yield gauge("headgate_quota_buckets", "Buckets of connected Envoys.", state.quotas.buckets)
    yield from counter_metrics(state.counters, groups)


def _ages(age: AccountingAge | None) -> Iterator[Metric]:
    meaning = "seconds from the receipt of a request, by the gatekeeper's clock, to the arrival of its accounting"
    for word, extreme in (("Smallest", "min"), ("Largest", "max")):
        name = f"headgate_master_accounting_age_{extreme}_seconds"
        value = math.nan if age is None else getattr(age, extreme)
        yield gauge(name, f"{word} number of {meaning}, in the last minute.", value)
