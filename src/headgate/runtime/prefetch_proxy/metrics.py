"""The metrics of a proxy.

All values of labels exist from the start. No label names an origin: untrusted input chooses those.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.proxy.counters import ACCEPTED
from headgate.proxy.refusal import REFUSALS
from headgate.runtime.prefetch_proxy.state import ProxyState

_FETCHES: Final = ("entry", "none", "unreachable")


def proxy_metrics(state: ProxyState) -> Iterator[Metric]:
    """Make the metrics of a proxy."""
    counts = state.counts
    connects = CounterMetricFamily(
        "headgate_proxy_connects", "CONNECT requests by result and reason.", labels=["result", "reason"]
    )
    connects.add_metric([ACCEPTED, ""], counts.connects.get(ACCEPTED, 0))
    for reason in REFUSALS:
        connects.add_metric(["refused", reason], counts.connects.get(reason, 0))
    yield connects
    yield GaugeMetricFamily("headgate_proxy_tunnels", "Open tunnels.", counts.tunnels)
    passed = CounterMetricFamily(
        "headgate_proxy_bytes",
        "Bytes that clients received and sent through tunnels.",
        labels=["direction"],
    )
    passed.add_metric(["received"], counts.received)
    passed.add_metric(["sent"], counts.sent)
    yield passed
    fetches = CounterMetricFamily(
        "headgate_proxy_advice_fetches", "Traffic advice fetches by result.", labels=["result"]
    )
    for result in _FETCHES:
        fetches.add_metric([result], counts.advice_fetches.get(result, 0))
    yield fetches
    yield CounterMetricFamily(
        "headgate_proxy_advice_request_bytes",
        "Bytes sent to fetch traffic advice, including TLS.",
        counts.advice_request_bytes,
    )
    yield CounterMetricFamily(
        "headgate_proxy_connect_request_bytes",
        "Bytes of CONNECT request heads, including TLS.",
        counts.connect_request_bytes,
    )
    yield CounterMetricFamily(
        "headgate_proxy_log_dropped", "Log lines dropped: stderr was read too slowly.", state.dropped
    )
