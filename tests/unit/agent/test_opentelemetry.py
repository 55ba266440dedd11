"""The events of an agent as metrics, and as events of the span that is current."""

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from headgate.agent.opentelemetry import instrument
from headgate.agent.state import Event

URL = "https://example.com/"
EVENTS = (
    Event(kind="sent", url=URL, now=1.0, method="GET"),
    Event(kind="answered", url=URL, now=1.1, method="GET", status=503),
    Event(kind="waits", url=URL, now=1.2, reason="retry-after", release_time=3.2, delay=2.0),
    Event(kind="retried", url=URL, now=3.2, status=503, number=1, delay=0.5),
    Event(kind="advice", url=URL, now=3.3, reason="text of the origin"),
)


def test_events_are_counted_and_added_to_the_current_span():
    reader = InMemoryMetricReader()
    on_event = instrument(MeterProvider([reader]))
    with TracerProvider().get_tracer("test").start_as_current_span("page") as span:
        for event in EVENTS:
            on_event(event)
    assert [(one.name, one.attributes.get("reason"), one.attributes["headgate.delay"]) for one in span.events] == [
        ("headgate.waits", "retry-after", 2.0),
        ("headgate.retried", None, 0.5),
    ]
    assert span.events[0].attributes["headgate.release_time"] == 3.2
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    events, waits = scope.metrics
    assert (events.name, waits.name, waits.unit) == ("headgate.agent.events", "headgate.agent.wait", "s")
    assert {tuple(sorted(point.attributes.items())): point.value for point in events.data.data_points} == {
        (("event", "sent"),): 1,
        (("event", "answered"), ("http.response.status_code", 503)): 1,
        (("event", "waits"), ("reason", "retry-after")): 1,
        (("event", "retried"), ("http.response.status_code", 503)): 1,
        (("event", "advice"),): 1,
    }
    assert waits.data.data_points[0].sum == 2.0
