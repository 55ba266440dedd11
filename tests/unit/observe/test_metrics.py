import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_families

from headgate.observe import DomainState, HeldIdentifier, Metrics, State, gate_metrics

STATE = State(
    (
        DomainState("default", accepted=3, delayed=2, rejected=1, held=(HeldIdentifier("192.0.2.1", 1.0, 1.0),)),
        DomainState('odd "name"\n\\', accepted=9),
    ),
    delayed_now=2,
    connections=5,
    workers=2,
    counters={"link_sent": 7},
)


def samples(families):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }


@pytest.mark.parametrize("accept", ["", "*/*", "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"])
def test_openmetrics_is_the_default(accept):
    text, kind = Metrics(gate_metrics).write(STATE, accept)
    assert kind.startswith("application/openmetrics-text")
    found = samples(text_string_to_metric_families(text.decode()))
    labels = (("domain", "default"), ("outcome", "delayed"))
    assert found["headgate_requests_total", *labels] == 2
    assert found["headgate_requests_total", ("domain", 'odd "name"\n\\'), ("outcome", "accepted")] == 9
    assert found["headgate_delayed_requests",] == 2
    assert found["headgate_link_sent_total",] == 7
    assert found["headgate_workers",] == 2
    assert any(name[0] == "process_resident_memory_bytes" for name in found)


def test_the_older_format_where_only_that_is_asked_for():
    text, kind = Metrics(gate_metrics).write(STATE, "text/plain;version=0.0.4")
    assert kind.startswith("text/plain")
    assert (
        samples(older_families(text.decode()))[
            "headgate_requests_total", ("domain", "default"), ("outcome", "rejected")
        ]
        == 1
    )


def test_no_identifier_is_named():
    assert b"192.0.2.1" not in Metrics(gate_metrics).write(STATE)[0]


def test_each_scrape_reads_anew_and_registries_do_not_meet():
    metrics = Metrics(gate_metrics)
    assert b"} 3.0\n" in metrics.write(STATE)[0]
    assert b"} 3.0\n" not in metrics.write(State())[0]
    assert b"} 3.0\n" in Metrics(gate_metrics).write(STATE)[0]
