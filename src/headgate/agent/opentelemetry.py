"""OpenTelemetry for polite agents: `Courtesy(…, on_event=instrument())` counts events, and adds them to spans.

Spans of requests are those of the HTTP library's own instrumentation. What is held, waits or is retried is an event
of the current span. An origin chooses the value of one attribute only, the status.
"""

from collections.abc import Callable
from typing import Any

from headgate.agent.state import Event
from headgate.errors import MissingExtra
from headgate.release import ASAP
from headgate.version import VERSION

try:
    from opentelemetry import metrics, trace
except ImportError:
    raise MissingExtra("opentelemetry", "headgate.agent.opentelemetry") from None

__all__ = ["instrument"]

_IN_SPANS = frozenset({"waits", "held", "retried"})


def instrument(meter_provider: metrics.MeterProvider | None = None) -> Callable[[Event], None]:
    """Return a function for `on_event`; without a provider, it reports to the global one.

    Metrics: the counter `headgate.agent.events` with `event`, `reason` and `http.response.status_code`, the histogram
    `headgate.agent.wait` in seconds, with `reason`.
    """
    meter = metrics.get_meter("headgate.agent", VERSION, meter_provider)
    events = meter.create_counter("headgate.agent.events", description="What happened to requests.")
    waits = meter.create_histogram("headgate.agent.wait", "s", "Seconds that a request waits before it is sent.")

    def on_event(event: Event) -> None:
        attributes: dict[str, Any] = {"event": event.kind}
        if event.reason and event.kind != "advice":
            attributes["reason"] = event.reason
        if event.status:
            attributes["http.response.status_code"] = event.status
        events.add(1, attributes)
        if event.kind == "waits":
            waits.record(event.delay, {"reason": event.reason})
        span = trace.get_current_span()
        if event.kind in _IN_SPANS and span.is_recording():
            when = {} if event.release_time == ASAP else {"headgate.release_time": event.release_time}
            span.add_event(f"headgate.{event.kind}", {**attributes, **when, "headgate.delay": event.delay})

    return on_event
