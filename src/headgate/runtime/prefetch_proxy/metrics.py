"""A proxy's metrics. Every value of a label is there from the beginning, and no origin is one: strangers name those."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.proxy.counters import ACCEPTED
from headgate.proxy.refusal import REFUSALS
from headgate.runtime.prefetch_proxy.state import ProxyState

__all__ = ["proxy_metrics"]

_FETCHES: Final = ("entry", "none", "unreachable")


def proxy_metrics(state: ProxyState) -> Iterator[Metric]:
    """Make the metrics of a proxy."""
    counts = state.counts
    connects = CounterMetricFamily(
        "headgate_proxy_connects", "CONNECTs by what became of them, and why.", labels=["result", "reason"]
    )
    connects.add_metric([ACCEPTED, ""], counts.connects.get(ACCEPTED, 0))
    for reason in REFUSALS:
        connects.add_metric(["refused", reason], counts.connects.get(reason, 0))
    yield connects
    yield GaugeMetricFamily("headgate_proxy_tunnels", "Tunnels that are open.", counts.tunnels)
    passed = CounterMetricFamily(
        "headgate_proxy_bytes",
        "Bytes that clients received and sent in tunnels.",
        labels=["direction"],
    )
    passed.add_metric(["received"], counts.received)
    passed.add_metric(["sent"], counts.sent)
    yield passed
    fetches = CounterMetricFamily(
        "headgate_proxy_advice_fetches", "Fetches of traffic advice by what they resulted in.", labels=["result"]
    )
    for result in _FETCHES:
        fetches.add_metric([result], counts.advice_fetches.get(result, 0))
    yield fetches
    yield CounterMetricFamily(
        "headgate_proxy_advice_request_bytes",
        "Bytes written to sockets to ask for advice, TLS included.",
        counts.advice_request_bytes,
    )
    yield CounterMetricFamily(
        "headgate_proxy_connect_request_bytes",
        "Bytes of the heads of CONNECTs, with TLS.",
        counts.connect_request_bytes,
    )
    yield CounterMetricFamily("headgate_proxy_log_dropped", "Lines of the log that nobody read in time.", state.dropped)
