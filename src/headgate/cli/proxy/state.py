"""What a proxy is doing, as a value: what a worker tells, what all of them come to, and how it is shown."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.advice.answer import Advice
from headgate.agent.proxy.counts import ACCEPTED, Counts
from headgate.agent.proxy.refusal import ANSWERS
from headgate.cli.advice.saying import as_json

__all__ = ["ProxyState", "WorkerState", "proxy_metrics", "shown"]

_FETCHES: Final = ("entry", "none", "unreachable")


class WorkerState(msgspec.Struct, frozen=True):
    """What one process that accepts connections tells of itself."""

    counts: Counts
    """What it counted; nothing of the advice, where that is asked for elsewhere."""
    dropped: int = 0
    """Lines of its log that nobody will read."""
    cut: int = 0
    """Tunnels that had not ended when it did."""


class ProxyState(msgspec.Struct, frozen=True):
    """A whole proxy at one instant."""

    counts: Counts
    """What all its processes counted."""
    advice: dict[str, Advice]
    """What is known, and fresh, of the origins in `counts`."""
    now: float
    """When: seconds since 1970."""
    dropped: int = 0
    """Lines of the log that nobody will read."""
    draining: bool = False
    """Whether the end has begun."""


def shown(state: ProxyState) -> dict[str, Any]:
    """Give what /api/state shows.

    An origin's `result` is an object with `disallowed` and `fraction`, "unreachable", or null: without advice where
    `fresh_for` is more than 0 (seconds), and else not known, or not known any more.
    """
    origins = []
    for origin, counts in state.counts.origins.items():
        known = state.advice.get(origin)
        origins.append(
            {
                "origin": origin,
                "result": None if known is None else as_json(known.result),
                "fresh_for": 0.0 if known is None else round(max(0.0, known.fresh_until - state.now), 3),
                "accepted": counts.accepted,
                "refused": counts.refused,
            }
        )
    return {"origins": origins, "tunnels": state.counts.tunnels, "draining": state.draining}


def proxy_metrics(state: ProxyState) -> Iterator[Metric]:
    """Make the metrics of a proxy; every value of a label is there from the beginning, and no origin is one."""
    counts = state.counts
    connects = CounterMetricFamily(
        "headgate_proxy_connects", "CONNECTs by what became of them, and why.", labels=["result", "reason"]
    )
    connects.add_metric([ACCEPTED, ""], counts.connects.get(ACCEPTED, 0))
    for reason in ANSWERS:
        connects.add_metric(["refused", reason], counts.connects.get(reason, 0))
    yield connects
    yield GaugeMetricFamily("headgate_proxy_tunnels", "Tunnels that are open.", counts.tunnels)
    passed = CounterMetricFamily(
        "headgate_proxy_bytes",
        "Bytes that clients received and sent in tunnels that are over.",
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
        "headgate_proxy_connect_request_bytes", "Bytes of the heads of CONNECTs.", counts.connect_request_bytes
    )
    yield CounterMetricFamily("headgate_proxy_log_dropped", "Lines of the log that nobody read in time.", state.dropped)
