"""Metrics: a state written in the OpenMetrics text format, or Prometheus's older one where only that is asked for.

Totals are read at scrape time and nothing is counted twice. No label names an identifier: strangers choose those, and
there is no end to them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from headgate.observe.state import State

__all__ = ["Collect", "Metrics", "gate_metrics"]

_State = TypeVar("_State")

Collect: TypeAlias = Callable[[_State], Iterable[Metric]]
"""Makes metrics of a state."""

_OUTCOMES = ("accepted", "delayed", "rejected")
_HELP = {
    "accounting_ahead": "Verdicts from gatekeepers whose clock is more than a second ahead of the master's.",
    "clock_steps": "Times the clock of this machine was set back by more than two seconds.",
    "gateway_crowded": "Connections answered 503: connection limit reached.",
    "gateway_crowded_client": "Connections answered 503: connection limit of their client address reached.",
    "gateway_lifeboat": "Rejected requests answered from a bundle instead.",
    "gateway_refused": "Requests refused because they were no plain HTTP.",
    "gateway_retried": "Requests sent to the origin a second time: its idle connection had closed.",
    "gateway_slow": "Requests the origin did not answer in time (504).",
    "gateway_truncated": "Responses of the origin that broke off.",
    "gateway_unreachable": "Requests the origin could not be had for (502).",
    "histories_evicted": "Histories the master dropped for want of room.",
    "holds_evicted": "Holds the gatekeeper dropped for want of room.",
    "holds_shortened": "Holds longer than the rules can make, cut: the clock may be behind the master's.",
    "link_batches": "Batches of verdicts sent to a master.",
    "link_controls": "Controls obeyed.",
    "link_dropped": "Verdicts dropped because the way to the master was full.",
    "link_malformed": "Control messages dropped because they were none.",
    "link_sent": "Verdicts sent to a master.",
    "link_too_long": "Verdicts dropped because no control could name their identifier.",
    "link_unheard": "Verdicts dropped because no master listened.",
    "shadowed": "Releases worked out for domains in shadow mode, and not published.",
}


class Metrics(Generic[_State]):
    """Writes states, as `collect` makes metrics of them; the process's own metrics come with them."""

    def __init__(self, collect: Collect[_State]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._states = _States(collect)
        self._registry.register(self._states)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def write(self, state: _State, accept: str = "") -> tuple[bytes, str]:
        """Write `state` for the Accept given; returns the text and its media type.

        OpenMetrics, unless the older format is asked for and OpenMetrics is not.
        """
        self._states.state = state
        if "text/plain" in accept and "application/openmetrics-text" not in accept:
            return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_LATEST
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]  # theirs has none
        return text, openmetrics.CONTENT_TYPE_LATEST


class _States(Collector, Generic[_State]):
    """Gives the metrics of the state it was handed last."""

    def __init__(self, collect: Collect[_State]) -> None:
        self.state: _State | None = None
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return () if self.state is None else self._collect(self.state)


def gate_metrics(state: State) -> Iterator[Metric]:
    """Make the metrics of a gate."""
    requests = CounterMetricFamily(
        "headgate_requests", "Requests by domain and by what became of them.", labels=["domain", "outcome"]
    )
    for domain in state.domains:
        for outcome in _OUTCOMES:
            requests.add_metric([_sayable(domain.name), outcome], getattr(domain, outcome))
    yield requests
    yield GaugeMetricFamily("headgate_delayed_requests", "Requests that wait for their release.", state.delayed_now)
    yield GaugeMetricFamily("headgate_connections", "Open connections of agents.", state.connections)
    yield GaugeMetricFamily("headgate_workers", "Processes that accept connections.", state.workers)
    for name, count in sorted(state.counters.items()):
        yield CounterMetricFamily(f"headgate_{name}", _HELP.get(name, name.replace("_", " ")), count)


def _sayable(name: str) -> str:
    return name.encode("utf-8", "replace").decode()
