import msgspec
import pytest

from headgate.histogram import SECONDS
from headgate.limit.messages import Accounting
from headgate.observe import GateState, merge_states, read_counters
from headgate.observe.metrics import counter_metrics
from headgate.origin.gateway.meter import CLASSES, RequestCounters, RequestMeter
from headgate.origin.gateway.record import FAILURES, RequestRecord
from headgate.release import Status


class Pool(msgspec.Struct):
    name: str = "origin:80"
    failures: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(FAILURES, 0))


def record(domain: str = "api", seconds: float = 0.0, **fields) -> RequestRecord:
    accounting = Accounting(domain, b"192.0.2.1", Status.ACCEPTED, 0.0, 0.0) if domain else None
    made = RequestRecord("192.0.2.1", 0.0, 0.0, fields.pop("request", None), accounting=accounting, end=seconds)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def samples(*meters: RequestMeter) -> dict[str, float]:
    """Return the samples of several workers that are not 0."""
    states = [GateState(counters=read_counters(("", meter.read(["api"], [Pool()])))) for meter in meters]
    # As they arrive from a worker.
    states = [msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=GateState) for state in states]
    return {
        " ".join([sample.name.removeprefix("headgate_"), *sample.labels.values()]): sample.value
        for metric in counter_metrics(merge_states(states).counters, [("", RequestCounters)])
        for sample in metric.samples
        if sample.value
    }


def meter_of(*records: RequestRecord) -> RequestMeter:
    meter = RequestMeter()
    for one in records:
        meter.count(one)
    return meter


@pytest.mark.parametrize(("status", "label"), [(0, "none"), (101, "1xx"), (204, "2xx"), (404, "4xx"), (999, "5xx")])
def test_a_response_counts_by_the_class_of_its_status(status, label):
    found = samples(meter_of(record(status=status, bytes=7)))
    assert found[f"responses_total api {label}"] == found["response_seconds_count api"] == 1
    assert found["response_bytes_total api"] == 7


def test_each_duration_has_its_histogram_and_workers_are_summed():
    asked = {"status": 200, "upstream": "origin:80", "upstream_start": 1.0, "upstream_status": 200}
    slow = record(seconds=4.0, wait=1.0, upstream_first_byte=3.5, **asked)  # exactly at a bound, and above one
    quick = record(seconds=0.0004, upstream_first_byte=1.0002, **asked)
    found = samples(meter_of(slow), meter_of(quick))
    assert (found["response_seconds_count api"], found["response_seconds_sum api"]) == (2, 4.0004)
    buckets = {f"{bound}": found.get(f"response_seconds_bucket api {bound}") for bound in SECONDS}
    assert [name for name, count in buckets.items() if count == 2] == ["5.0", "10.0", "30.0", "60.0"]
    assert (found["wait_seconds_bucket api 0.5"], found["wait_seconds_bucket api 1.0"]) == (1, 2)
    assert (found["upstream_seconds_bucket origin:80 1.0"], found["upstream_seconds_bucket origin:80 2.5"]) == (1, 2)
    assert found["upstream_responses_total origin:80 2xx"] == 2


def test_requests_that_no_rule_applies_to():
    reasons = ("", "timeout", "advice", "local", "denied", "redirect")
    found = samples(meter_of(*(record("", request=object(), reason=reason) for reason in reasons)))
    malformed = samples(meter_of(record("", status=400, reason="malformed")))
    assert (found["unmatched_requests_total"], found["responses_total none none"]) == (2, 6)
    assert malformed.keys() >= {"responses_total none 4xx"}
    assert "unmatched_requests_total" not in malformed


def test_the_counts_of_known_domains_and_origins_begin_at_0():
    meter = RequestMeter()
    read = meter.read(["api"], [Pool()])
    assert read.responses == {"none": dict.fromkeys(CLASSES, 0), "api": dict.fromkeys(CLASSES, 0)}
    assert read.response_seconds["api"] == {**dict.fromkeys([*map(str, SECONDS), "+Inf"], 0), "sum": 0.0}
    assert read.upstream_responses == {"origin:80": dict.fromkeys(CLASSES, 0)}
    assert read.upstream_failures == {"origin:80": dict.fromkeys(FAILURES, 0)}
