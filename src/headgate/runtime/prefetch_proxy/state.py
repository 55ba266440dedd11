"""The state of a whole proxy as a value, as JSON and as metrics.

All values of labels exist from the start. No label names an origin: untrusted input chooses those.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.advice.decision import Advice
from headgate.advice.parser import result_to_json
from headgate.proxy.counters import ACCEPTED, Counts
from headgate.proxy.refusal import REFUSALS


class ProxyState(msgspec.Struct, frozen=True):
    """A whole proxy at one instant."""

    counts: Counts
    """The sum of what its processes counted."""
    advice: dict[str, Advice]
    """Fresh advice of the origins in `counts`."""
    now: float
    """Time of reading, seconds since 1970."""
    dropped: int = 0
    """Log lines dropped."""
    draining: bool = False
    """Whether the proxy drains before it stops."""


def state_to_json(state: ProxyState) -> dict[str, Any]:
    """Return what /api/state shows.

    The `result` of an origin is an object with `disallowed` and `fraction`, "unreachable", or null. Null means that the
    origin gives no advice where `fresh_for` (seconds) is more than 0, else that its advice is unknown or expired.
    """
    origins = []
    for origin, counts in state.counts.origins.items():
        known = state.advice.get(origin)
        origins.append(
            {
                "origin": origin,
                "result": None if known is None else result_to_json(known.result),
                "fresh_for": 0.0 if known is None else round(max(0.0, known.fresh_until - state.now), 3),
                "accepted": counts.accepted,
                "refused": counts.refused,
            }
        )
    return {"origins": origins, "tunnels": state.counts.tunnels, "draining": state.draining}


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
