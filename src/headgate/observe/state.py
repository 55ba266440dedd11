"""The states of servers: read in one step, written as JSON or as metrics; those of workers are summed.

Totals only grow; holds are those at the time of reading. No label of a metric names an identifier, or a domain that
peers choose: untrusted input chooses those, and their number is unbounded.
"""

import hashlib
import ipaddress
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest
from itertools import chain
from operator import attrgetter
from platform import python_version
from typing import Any, Final

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric

from headgate.config.file import field_docs
from headgate.limit import Gatekeeper, Master
from headgate.limit.concurrency import PRIORITIES, ConcurrencyState, Reason
from headgate.observe.metrics import CounterGroups, Counters, counter, counter_metrics, gauge, gauges, sum_states
from headgate.version import VERSION

_METRICS: Final = (
    (
        "headgate_advice_fraction",
        "Fraction of a class of agents, 0 if it is disallowed: published, computed, and in force on average.",
        {"published": "published", "computed": "fraction", "in_force": "in_force"},
    ),
    (
        "headgate_advice_requests_per_second",
        "Requests per second of a class: those that would arrive without advice, and those that arrive.",
        {"demand": "demand", "arrivals": "arrivals"},
    ),
)
"""Names, descriptions, and the fields by the values of the label `kind`."""


class AdviceState(msgspec.Struct, frozen=True):
    """What is published as traffic advice for one class of agents, and why. Rates are in requests per second."""

    user_agent: str
    """The name of its entry."""
    fraction: float
    """The fraction that is computed; 0 if the class is disallowed. Without a computation, that of the entry."""
    published: float = 1.0
    """The fraction that is published: another one in mode monitor."""
    demand: float | None = None
    """What would arrive without advice, as estimated; null without a computation."""
    arrivals: float | None = None
    """What arrived in the window of the estimate, before anything was rejected."""
    in_force: float | None = None
    """The fraction that agents obey on average: the mean of what was published in the last max-age."""
    reason: str = "static"
    """Why the fraction is what it is."""


def advice_metrics(classes: Sequence[AdviceState]) -> Iterator[Metric]:
    """Make the metrics of all classes. Their names come from the configuration, so they may be labels."""
    for name, text, kinds in _METRICS:
        values = {
            one.user_agent: {kind: value for kind, field in kinds.items() if (value := getattr(one, field)) is not None}
            for one in classes
        }
        if any(values.values()):
            yield gauge(name, text, values, "user_agent", "kind")


_MOST_HELD = 10
_release = attrgetter("release")
OUTCOMES: Final = ("accepted", "delayed", "rejected")
"""The verdicts on requests."""
_GAUGES = {
    "delayed_now": "headgate_delayed_requests",
    "workers": "headgate_workers",
}
_LIMIT_GAUGES = {
    "limit": "headgate_concurrency_limit",
    "in_flight": "headgate_requests_in_flight",
    "uncounted": "headgate_requests_uncounted",
    "overloaded": "headgate_concurrency_overloaded",
    "latency": "headgate_concurrency_latency_seconds",
    "capacity": "headgate_concurrency_capacity",
}


class HeldIdentifier(msgspec.Struct, frozen=True):
    """One identifier that is held."""

    identifier: str
    """As text, bytes that are not UTF-8 escaped with a backslash; or as a digest, `sha256:` and 16 digits."""
    release: float
    """Its release time, seconds since 1970."""
    seconds: float
    """Seconds from the reading to the release."""

    @classmethod
    def of(cls, text: str, release: float, now: float) -> "HeldIdentifier":
        """Describe an identifier, as text, that is held at `now`."""
        return cls(text, round(release, 3), round(release - now, 3))


class LinkedMasterState(msgspec.Struct, frozen=True):
    """One master of a gate, a sidecar or a router."""

    address: str
    """Its address as written in the configuration."""
    up: bool = False
    """Whether it is connected; with several workers, whether it is connected to all of them."""


class DomainState(msgspec.Struct, frozen=True):
    """One domain: its rules, its totals and its longest holds."""

    name: str
    rules: tuple[str, ...] = ()
    """Empty where only a master elsewhere knows the rules."""
    algorithm: str = "gcra"
    mode: str = "enforce"
    accepted: int = 0
    delayed: int = 0
    rejected: int = 0
    held: tuple[HeldIdentifier, ...] = ()
    """The identifiers that are held longest, at most 10."""
    holds: int = 0
    """Holds in force. Each worker of a gate has all of its master."""


class OriginState(msgspec.Struct, frozen=True):
    """One origin."""

    failed: bool = False
    """Whether it has failed in any worker: others are asked instead, if there are any."""
    failure: str = ""
    """The last failure, of a request or a check."""


class GateState(msgspec.Struct, frozen=True):
    """One gate, or the sum of its workers."""

    domains: tuple[DomainState, ...] = ()
    delayed_now: int = 0
    """Requests that are delayed now."""
    connections: dict[str, int] = {}
    """Open connections of clients by state; see `headgate.origin.gateway.states`."""
    upstream_connections: dict[str, dict[str, int]] = {}
    """Connections to each origin: active, with a request, and idle."""
    workers: int = 1
    """Processes that accept connections."""
    master: str = "embedded"
    """Where the rules are applied: "embedded", or the addresses of masters elsewhere, separated by commas."""
    masters: tuple[LinkedMasterState, ...] = ()
    """Masters elsewhere."""
    store: str = "memory"
    """Where the histories of an embedded master are: memory, or the state of the store."""
    concurrency: ConcurrencyState | None = None
    """The concurrency limit, if there is one."""
    counters: Counters = {}
    """Further totals, such as those of the link; see `headgate.observe.metrics`."""
    origins: dict[str, OriginState] = {}
    """The origins by their URLs without `http://`, in the order of the configuration."""
    advice: tuple[AdviceState, ...] = ()
    """What is published as traffic advice, by class."""


class GatekeeperTotals(msgspec.Struct):
    """What a gatekeeper counts."""

    evicted: int = 0
    """Holds evicted from the gatekeeper's full table."""
    shortened: int = 0
    """Holds longer than the maximum, shortened: the clock differs from the master's, or forgery."""
    clock_steps: int = 0
    """Times the clock of the gatekeeper's machine was set back by more than two seconds."""

    @classmethod
    def of(cls, gatekeeper: Gatekeeper) -> "GatekeeperTotals":
        """Read those of a gatekeeper."""
        return cls(gatekeeper.evicted, gatekeeper.shortened, gatekeeper.clock.steps)


class MasterTotals(msgspec.Struct):
    """What a master counts, be it a process of its own or in a gate."""

    evicted: int = 0
    """Histories evicted from the master's full table."""
    shadowed: int = 0
    """Release times computed for domains in shadow mode, and not published."""
    unknown: int = 0
    """Accounting dropped: unknown domain."""
    clock_steps: int = 0
    """Times the clock of the master's machine was set back by more than two seconds."""
    adjusted: dict[str, int] = msgspec.field(default_factory=lambda: {"ahead": 0, "late": 0, "shortened": 0})
    """Accounting from a clock over a second ahead, over five seconds old, or delayed for longer than the maximum."""

    @classmethod
    def of(cls, master: Master) -> "MasterTotals":
        """Read those of a master."""
        adjusted = {"ahead": master.ahead, "late": master.late, "shortened": master.shortened}
        return cls(master.evicted, master.shadowed, master.unknown, master.clock.steps, adjusted)


def identifier_text(identifier: bytes) -> str:
    """Return an identifier as text; bytes that are not UTF-8 are escaped with a backslash."""
    return identifier.decode("utf-8", "backslashreplace")


def identifier_digest(identifier: bytes) -> str:
    """Return an address or the URL of an agent as text, others as the first 16 hexadecimal digits of their SHA-256."""
    text = identifier_text(identifier)
    if text.startswith("https://"):
        return text
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return f"sha256:{hashlib.sha256(identifier).hexdigest()[:16]}"
    return text


def merge_states(states: Iterable[GateState]) -> GateState:
    """Return the sum of the states of one gate's workers; of several holds of an identifier, the longest."""
    listed = list(states)
    if len(listed) < 2:
        return listed[0] if listed else GateState(workers=0)
    domains: dict[str, list[DomainState]] = {}
    for state in listed:
        for domain in state.domains:
            domains.setdefault(domain.name, []).append(domain)
    return sum_states(
        listed,
        domains=tuple(_merged_domain(same) for same in domains.values()),
        masters=_merged_masters(listed),
        concurrency=sum_limits(state.concurrency for state in listed),
        advice=next((state.advice for state in listed if state.advice), ()),
    )


def _merged_domain(same: list[DomainState]) -> DomainState:
    # Rules and modes are those of the last state, the one read last after a reload.
    held = {one.identifier: one for one in sorted((one for domain in same for one in domain.held), key=_release)}
    longest = tuple(nlargest(_MOST_HELD, held.values(), key=_release))
    return sum_states(same, held=longest, holds=max(domain.holds for domain in same))


def _merged_masters(states: list[GateState]) -> tuple[LinkedMasterState, ...]:
    up: dict[str, bool] = {}
    for master in chain.from_iterable(state.masters for state in states):
        up[master.address] = master.up and up.get(master.address, True)
    return tuple(LinkedMasterState(*one) for one in up.items())


def ended_state(state: GateState) -> GateState:
    """Return what remains of the state of a process that has ended: its totals; all else is as at a start."""
    limit = state.concurrency
    return GateState(
        domains=tuple(msgspec.structs.replace(domain, held=(), holds=0) for domain in state.domains),
        workers=0,
        concurrency=limit and ConcurrencyState(0.0, 0, 0, limit.mode, rejected=limit.rejected),
        counters=state.counters,
        advice=state.advice,
    )


def sum_limits(states: Iterable[ConcurrencyState | None]) -> ConcurrencyState | None:
    """Return the sum of the limits of several workers; None without one."""
    found = [state for state in states if state is not None]
    if len(found) < 2:
        return found[0] if found else None
    return sum_states(found, latency=max(state.latency for state in found))


def gate_metrics(state: GateState, groups: CounterGroups) -> Iterator[Metric]:
    """Make the metrics of a gate with these groups of counters."""
    yield domain_totals("headgate_requests", "Requests by domain and outcome.", state.domains)
    yield from gatekeeper_gauges(state.domains, state.masters)
    yield from store_up(state.store)
    yield from gauges(state, _GAUGES)
    yield gauge("headgate_connections", "Open connections of clients, by state.", state.connections, "state")
    yield gauge(
        "headgate_upstream_connections",
        "Connections to an origin: active, with a request, and idle.",
        state.upstream_connections,
        "origin",
        "state",
    )
    if state.concurrency is not None:
        yield from _limit_metrics(state.concurrency)
    up = {name: int(not origin.failed) for name, origin in state.origins.items()}
    yield gauge(
        "headgate_origin_up",
        "1, or 0 while the origin has failed: others are asked instead, if there are any.",
        up,
        "origin",
    )
    yield from advice_metrics(state.advice)
    yield from counter_metrics(state.counters, groups)


def gatekeeper_gauges(domains: Sequence[DomainState], masters: Iterable[LinkedMasterState]) -> Iterator[Metric]:
    """Make the gauges of a gatekeeper: its holds, its rules, and its masters elsewhere."""
    yield gauge("headgate_holds", "Identifiers held, by domain.", {one.name: one.holds for one in domains}, "domain")
    yield rules_digests(domains)
    up = {master.address: master.up for master in masters}
    yield gauge("headgate_master_up", "1 if the master is connected, else 0.", up, "master")


def rules_digests(domains: Iterable[DomainState]) -> Metric:
    """Return a metric with a number for the rules of each domain that has some: equal where these are equal."""
    digests = {
        domain.name: zlib.crc32(repr((sorted(domain.rules), domain.algorithm, domain.mode)).encode())
        for domain in domains
        if domain.rules
    }
    return gauge(
        "headgate_rules_digest",
        "A checksum of the rules, the algorithm and the mode of a domain: differs where gate and master differ.",
        digests,
        "domain",
    )


def store_up(store: str) -> Iterator[Metric]:
    """Make the gauge of a store in this state; none without a store."""
    if store != "memory":
        yield gauge("headgate_store_up", "1 if the store, and each server of it, can be used, else 0.", store == "up")


def _limit_metrics(state: ConcurrencyState) -> Iterator[Metric]:
    yield from gauges(state, _LIMIT_GAUGES)
    waiting = {name: state.waiting.get(name, 0) for name in PRIORITIES}
    yield gauge("headgate_queued_requests", "Requests that wait for a permit.", waiting, "priority")
    text = "Requests rejected by the concurrency limit; in monitor mode those that would be."
    unused = {reason.value: 0 for reason in Reason}
    rejected = {name: unused | state.rejected.get(name, {}) for name in PRIORITIES}
    yield counter("headgate_concurrency_rejected", text, rejected, "priority", "reason")


def domain_totals(name: str, text: str, domains: Iterable[DomainState]) -> Metric:
    """Return a metric with the totals of domains by outcome."""
    totals = {domain.name: {outcome: getattr(domain, outcome) for outcome in OUTCOMES} for domain in domains}
    return counter(name, text, totals, "domain", "outcome")


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


class RoutedMasterState(LinkedMasterState, frozen=True):
    """One master of a router."""

    sent: int = 0
    """Accounting messages and records sent to the master."""
    dropped: int = 0
    """Accounting messages and records dropped: the queue of the master was full."""
    controls: int = 0
    """Control messages received from the master and passed on."""


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
    docs = field_docs(RoutedMasterState)
    for name in ("sent", "dropped", "controls"):
        yield counter(f"headgate_router_{name}", docs[name], by_master(name), "master")
    yield gauge(
        "headgate_router_gates",
        "Connected gatekeepers, a process each, and routers, by the names of their keys.",
        state.gatekeepers,
        "key",
    )
    yield gauge("headgate_router_domains", "Domains whose accounting was received.", len(state.domains))
    yield from counter_metrics(state.counters, groups)


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


_SERVER_GAUGES = {
    "reload_successful": "headgate_config_last_reload_successful",
    "reloaded": "headgate_config_last_reload_timestamp_seconds",
}


class ServerState(msgspec.Struct):
    """What every server has besides the state of its kind."""

    reload_successful: bool = True
    """1 if the configuration in force is the last one that was read, 0 if that one was invalid."""
    reloaded: float = 0.0
    """Time at which the configuration in force was read, seconds since 1970."""
    workers: Mapping[str, tuple[int, bool]] = {}
    """The process id of each worker, by its number from 0, and whether it answers."""


def server_metrics(state: ServerState) -> Iterator[Metric]:
    """Make the metrics of what all servers have in common."""
    build = {VERSION: {python_version(): 1}}
    yield gauge("headgate_build_info", "1; the labels are the versions.", build, "version", "python")
    yield from gauges(state, _SERVER_GAUGES)
    yield gauge(
        "headgate_workers_unresponsive",
        "Workers that do not answer; one that does not run either is replaced.",
        sum(not answers for _, answers in state.workers.values()),
    )


def process_metrics(own: Iterable[Metric], workers: Mapping[str, tuple[int, bool]]) -> Iterator[Metric]:
    """Add those of workers to the metrics of this process, which are without the label `worker`."""
    found = {
        number: {metric.name: metric for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect()}
        for number, (pid, _) in workers.items()
    }
    for metric in own:
        for number, metrics in found.items():
            same = metrics[metric.name].samples if metric.name in metrics else []
            metric.samples += [sample._replace(labels={"worker": number}) for sample in same]
        yield metric
