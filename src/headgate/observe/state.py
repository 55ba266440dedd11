"""The state of a gate: read in one step, summed over workers, written as JSON or as metrics.

Totals only grow; holds are those at the time of reading. No label of a metric names an identifier: untrusted input
chooses those, and their number is unbounded.
"""

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.observe.advice import AdviceState, advice_metrics
from headgate.observe.concurrency import ConcurrencyReport, concurrency_metrics, sum_reports

_MOST_HELD = 10
_DIGITS = 16
_OUTCOMES = ("accepted", "delayed", "rejected")
MASTER_HELP = {
    "accounting_ahead": "Accounting from gatekeepers whose clock is more than a second ahead of the master's.",
    "clock_steps": "Times the clock of this machine was set back by more than two seconds.",
    "histories_evicted": "Histories evicted from the master's full table.",
    "shadowed": "Release times computed for domains in shadow mode, and not published.",
    "store_failures": "Connections to the store that failed or could not be opened.",
    "store_holds_sent": "Live holds sent to the store after a connection.",
    "store_learned": "Holds published that were later than this master's own: other masters had sent requests.",
    "store_libraries_loaded": "Times that a server of the store did not have the function library.",
    "store_lost": "Records sent to the store and not answered: the connection failed.",
    "store_shared": "Records that the store has answered.",
    "store_unshared": "Records not sent to the store: it was down, or its queue full.",
}
"""Descriptions of the counters of a master, which a gate has, too, if its master is embedded."""
GATEKEEPER_HELP = {
    "clock_steps": MASTER_HELP["clock_steps"],
    "holds_evicted": "Holds evicted from the gatekeeper's full table.",
    "holds_shortened": "Holds longer than the maximum, shortened: the clock differs from the master's, or forgery.",
    "link_batches": "Batches of accounting sent to a master.",
    "link_controls": "Control messages obeyed.",
    "link_dropped": "Accounting dropped: the queue to the master was full.",
    "link_failed_handshakes": "Connections to a master that failed their handshake: the keys of one side are wrong.",
    "link_malformed": "Malformed control messages dropped.",
    "link_resent": "Accounting sent again to a master that had not received it.",
    "link_sent": "Accounting sent to a master.",
    "link_too_long": "Accounting dropped: identifier over 255 bytes.",
    "link_unheard": "Accounting dropped: no master was connected.",
}
"""Descriptions of the counters of a gatekeeper and its link, which a gate and a sidecar have."""
_HELP = {
    **MASTER_HELP,
    **GATEKEEPER_HELP,
    "gateway_advice_refused": "Fetches of the traffic advice answered 429 or 503: too many.",
    "gateway_advice_served": "Requests for the traffic advice that were answered.",
    "gateway_crowded": "Connections answered 503: connection limit reached.",
    "gateway_crowded_client": "Connections answered 503: connection limit of their client address reached.",
    "gateway_lifeboat": "Rejected requests answered from a bundle instead.",
    "gateway_refused": "Requests refused as malformed HTTP.",
    "gateway_retried": "Requests sent to the origin a second time: its idle connection had closed.",
    "gateway_slow": "Requests answered 504: origin timeout.",
    "gateway_truncated": "Responses of the origin that ended before they were complete.",
    "gateway_unreachable": "Requests answered 502: origin unreachable.",
}


class HeldIdentifier(msgspec.Struct, frozen=True):
    """One identifier that is held."""

    identifier: str
    """As text, bytes that are not UTF-8 escaped with a backslash; or as a digest, `sha256:` and 16 digits."""
    release: float
    """Its release time, seconds since 1970."""
    seconds: float
    """Seconds from the reading to the release."""


class DomainState(msgspec.Struct, frozen=True):
    """One domain: its rules, its totals and its longest holds."""

    name: str
    rules: tuple[str, ...] = ()
    """Empty where only a master elsewhere knows the rules."""
    algorithm: str = "log"
    mode: str = "enforce"
    accepted: int = 0
    delayed: int = 0
    rejected: int = 0
    held: tuple[HeldIdentifier, ...] = ()
    """The identifiers that are held longest, at most 10."""

    @property
    def label(self) -> str:
        """The name as the value of a label; bytes that are not UTF-8 are replaced."""
        return self.name.encode("utf-8", "replace").decode()


class GateState(msgspec.Struct, frozen=True):
    """One gate, or the sum of its workers."""

    domains: tuple[DomainState, ...] = ()
    delayed_now: int = 0
    """Requests that are delayed now."""
    connections: int = 0
    """Open connections of clients."""
    workers: int = 1
    """Processes that accept connections."""
    master: str = "embedded"
    """Where the rules are applied: "embedded", or the addresses of masters elsewhere, separated by commas."""
    concurrency: ConcurrencyReport | None = None
    """The concurrency limit, if there is one."""
    counters: dict[str, int] = {}
    """Further totals by the name of their metric, such as those of the link."""
    advice: tuple[AdviceState, ...] = ()
    """What is published as traffic advice, by class."""


def identifier_text(identifier: bytes) -> str:
    """Return an identifier as text; bytes that are not UTF-8 are escaped with a backslash."""
    return identifier.decode("utf-8", "backslashreplace")


def identifier_digest(identifier: bytes) -> str:
    """Return an address as text, anything else as the first 16 hexadecimal digits of its SHA-256."""
    text = identifier_text(identifier)
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return f"sha256:{hashlib.sha256(identifier).hexdigest()[:_DIGITS]}"
    return text


def merge_states(states: Iterable[GateState]) -> GateState:
    """Return the sum of the states of one gate's workers; of several holds of an identifier, the longest."""
    listed = list(states)
    if len(listed) < 2:
        return listed[0] if listed else GateState(workers=0)
    domains: dict[str, list[DomainState]] = {}
    counters: dict[str, int] = {}
    for state in listed:
        for domain in state.domains:
            domains.setdefault(domain.name, []).append(domain)
        for name, count in state.counters.items():
            counters[name] = counters.get(name, 0) + count
    return GateState(
        domains=tuple(_merged_domain(same) for same in domains.values()),
        delayed_now=sum(state.delayed_now for state in listed),
        connections=sum(state.connections for state in listed),
        workers=sum(state.workers for state in listed),
        master=listed[-1].master,
        concurrency=sum_reports(state.concurrency for state in listed),
        counters=counters,
        advice=next((state.advice for state in listed if state.advice), ()),
    )


def _merged_domain(same: list[DomainState]) -> DomainState:
    # Rules and modes are those of the last state, the one read last after a reload.
    held = {one.identifier: one for one in sorted((one for domain in same for one in domain.held), key=_release)}
    return msgspec.structs.replace(
        same[-1],
        accepted=sum(domain.accepted for domain in same),
        delayed=sum(domain.delayed for domain in same),
        rejected=sum(domain.rejected for domain in same),
        held=tuple(nlargest(_MOST_HELD, held.values(), key=_release)),
    )


def _release(held: HeldIdentifier) -> float:
    return held.release


def gate_metrics(state: GateState) -> Iterator[Metric]:
    """Make the metrics of a gate."""
    yield domain_totals("headgate_requests", "Requests by domain and outcome.", state.domains)
    yield GaugeMetricFamily("headgate_delayed_requests", "Requests that are delayed now.", state.delayed_now)
    yield GaugeMetricFamily("headgate_connections", "Open connections of clients.", state.connections)
    yield GaugeMetricFamily("headgate_workers", "Processes that accept connections.", state.workers)
    yield from concurrency_metrics(state.concurrency)
    yield from advice_metrics(state.advice)
    yield from counter_metrics(state.counters, _HELP)


def domain_totals(name: str, description: str, domains: Iterable[DomainState]) -> CounterMetricFamily:
    """Return a metric with the totals of domains by outcome."""
    requests = CounterMetricFamily(name, description, labels=["domain", "outcome"])
    for domain in domains:
        for outcome in _OUTCOMES:
            requests.add_metric([domain.label, outcome], getattr(domain, outcome))
    return requests


def counter_metrics(counters: Mapping[str, int], descriptions: Mapping[str, str]) -> Iterator[Metric]:
    """Make a metric of each counter, in the order of their names."""
    for name, count in sorted(counters.items()):
        yield CounterMetricFamily(f"headgate_{name}", descriptions.get(name, name.replace("_", " ")), count)
