import json

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from headgate.advice.decision import Advice
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.observe.admin import MetricsWriter
from headgate.observe.state import ServerState
from headgate.proxy.counters import Counts
from headgate.proxy.refusal import REFUSALS
from headgate.runtime.prefetch_proxy_process import WorkerState
from headgate.runtime.prefetch_proxy_server import ProxyState, proxy_metrics, state_to_json

NOW = 1_000_000.0
A, B = "https://a.example", "https://b.example"


def state(**more):
    counts = Counts(
        received=70, sent=30, connect_request_bytes=11, advice_request_bytes=22, advice_fetches={"entry": 2}, tunnels=1
    )
    for origin, result in ((A, "accepted"), (B, "port"), (B, "port"), (A, "advice_fraction"), (None, "malformed")):
        counts.connected(origin, result)
    return ProxyState(counts, more.pop("advice", {}), NOW, **more)


@pytest.mark.parametrize(
    ("result", "written"),
    [
        (AdviceEntry(fraction=0.5), {"disallowed": False, "fraction": 0.5}),
        (AdviceEntry(disallowed=True), {"disallowed": True, "fraction": 1.0}),
        (UNREACHABLE, "unreachable"),
        (None, None),
    ],
)
def test_state_as_json(result, written):
    known = {A: Advice(A, result, "because", NOW + 12.34567)}
    told = json.loads(msgspec.json.encode(state_to_json(state(advice=known, draining=True))))
    assert told == {
        "origins": [
            {"origin": B, "result": None, "fresh_for": 0.0, "accepted": 0, "refused": {"port": 2}},
            {"origin": A, "result": written, "fresh_for": 12.346, "accepted": 1, "refused": {"advice_fraction": 1}},
        ],
        "tunnels": 1,
        "draining": True,
    }


def test_metrics_have_every_reason_and_no_origin():
    text = MetricsWriter().write(proxy_metrics(state(dropped=4)), ServerState())[0].decode()
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("headgate_")
    }
    connects = {key[1][1]: value for key, value in found.items() if key[0] == "headgate_proxy_connects_total"}
    assert connects.keys() == {"accepted", *REFUSALS}
    expected = {"accepted": 1, "port": 2, "malformed": 1, "advice_fraction": 1}
    assert {result: value for result, value in connects.items() if value} == expected
    rest = {
        key: value
        for key, value in found.items()
        if key[0].split("_")[1] in {"proxy", "log"} and "connects" not in key[0]
    }
    assert rest == {
        ("headgate_proxy_tunnels",): 1,
        ("headgate_proxy_bytes_total", ("direction", "received")): 70,
        ("headgate_proxy_bytes_total", ("direction", "sent")): 30,
        ("headgate_proxy_advice_fetches_total", ("result", "entry")): 2,
        ("headgate_proxy_advice_fetches_total", ("result", "none")): 0,
        ("headgate_proxy_advice_fetches_total", ("result", "unreachable")): 0,
        ("headgate_proxy_request_bytes_total", ("of", "advice")): 22,
        ("headgate_proxy_request_bytes_total", ("of", "connect")): 11,
        ("headgate_log_dropped_total",): 4,
    }
    assert "example" not in text


def test_state_of_a_worker_as_message():
    told = WorkerState(state().counts, dropped=1, cut=2)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=WorkerState) == told
