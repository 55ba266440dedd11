"""Metrics: a state in the OpenMetrics text format, or in Prometheus's older one where only that is accepted.

Totals are read at scrape time; nothing is counted twice. No label names an identifier: untrusted input chooses those,
and their number is unbounded.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from headgate.observe.state import State

_State = TypeVar("_State")

Collect: TypeAlias = Callable[[_State], Iterable[Metric]]
"""Makes metrics of a state."""

_OUTCOMES = ("accepted", "delayed", "rejected")
_HELP = {
    "accounting_ahead": "Accounting from gatekeepers whose clock is more than a second ahead of the master's.",
    "clock_steps": "Times the clock of this machine was set back by more than two seconds.",
    "gateway_crowded": "Connections answered 503: connection limit reached.",
    "gateway_crowded_client": "Connections answered 503: connection limit of their client address reached.",
    "gateway_lifeboat": "Rejected requests answered from a bundle instead.",
    "gateway_refused": "Requests refused as malformed HTTP.",
    "gateway_retried": "Requests sent to the origin a second time: its idle connection had closed.",
    "gateway_slow": "Requests answered 504: origin timeout.",
    "gateway_truncated": "Responses of the origin that ended before they were complete.",
    "gateway_unreachable": "Requests answered 502: origin unreachable.",
    "histories_evicted": "Histories evicted from the master's full table.",
    "holds_evicted": "Holds evicted from the gatekeeper's full table.",
    "holds_shortened": "Holds longer than the rules allow, shortened: the clock may be behind the master's.",
    "link_batches": "Batches of accounting sent to a master.",
    "link_controls": "Control messages obeyed.",
    "link_dropped": "Accounting dropped: the queue to the master was full.",
    "link_malformed": "Malformed control messages dropped.",
    "link_sent": "Accounting sent to a master.",
    "link_too_long": "Accounting dropped: identifier over 255 bytes.",
    "link_unheard": "Accounting dropped: no master was connected.",
    "shadowed": "Release times computed for domains in shadow mode, and not published.",
}


class Metrics(Generic[_State]):
    """Writes the metrics that `collect` makes of a state, and those of the process."""

    def __init__(self, collect: Collect[_State]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._states = _States(collect)
        self._registry.register(self._states)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def write(self, state: _State, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics of `state` in the format that `accept` asks for, and their media type.

        OpenMetrics, unless only the older format is accepted.
        """
        self._states.state = state
        if "text/plain" in accept and "application/openmetrics-text" not in accept:
            return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_LATEST
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]  # theirs has none
        return text, openmetrics.CONTENT_TYPE_LATEST


class _States(Collector, Generic[_State]):
    """Collects the metrics of `state`."""

    def __init__(self, collect: Collect[_State]) -> None:
        self.state: _State | None = None
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return () if self.state is None else self._collect(self.state)


def gate_metrics(state: State) -> Iterator[Metric]:
    """Make the metrics of a gate."""
    requests = CounterMetricFamily("headgate_requests", "Requests by domain and outcome.", labels=["domain", "outcome"])
    for domain in state.domains:
        for outcome in _OUTCOMES:
            requests.add_metric([_valid_text(domain.name), outcome], getattr(domain, outcome))
    yield requests
    yield GaugeMetricFamily("headgate_delayed_requests", "Requests that are delayed now.", state.delayed_now)
    yield GaugeMetricFamily("headgate_connections", "Open connections of clients.", state.connections)
    yield GaugeMetricFamily("headgate_workers", "Processes that accept connections.", state.workers)
    for name, count in sorted(state.counters.items()):
        yield CounterMetricFamily(f"headgate_{name}", _HELP.get(name, name.replace("_", " ")), count)


def _valid_text(name: str) -> str:
    return name.encode("utf-8", "replace").decode()
