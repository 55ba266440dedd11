"""Counters: totals, the most recent origins, sums over workers."""

import msgspec

from headgate.observe.metrics import sum_states
from headgate.proxy.counters import ACCEPTED, Counts, add_count


def test_connects_are_counted_by_result_and_origin():
    counts = Counts()
    counts.connected("https://a.example", ACCEPTED)
    counts.connected("https://a.example", "advice_fraction")
    counts.connected(None, "malformed")
    assert counts.connects == {ACCEPTED: 1, "advice_fraction": 1, "malformed": 1}
    assert counts.origins["https://a.example"].accepted == 1
    assert counts.origins["https://a.example"].refused == {"advice_fraction": 1}
    assert len(counts.origins) == 1


def test_the_number_of_origins_is_limited():
    counts = Counts()
    for number in range(5_000):
        counts.connected(f"https://{number}.example", "name")
        counts.connected("https://again.example", ACCEPTED)
    assert len(counts.origins) == 1_000
    assert counts.connects == {"name": 5_000, ACCEPTED: 5_000}
    assert counts.origins["https://again.example"].accepted == 5_000
    assert "https://0.example" not in counts.origins


def test_counters_of_workers_are_summed():
    one, other = Counts(), Counts()
    for counts, times in ((one, 2), (other, 3)):
        for _ in range(times):
            counts.connected("https://a.example", ACCEPTED)
        counts.connected("https://a.example", "name")
        counts.received, counts.sent, counts.tunnels = 10 * times, times, 1
        add_count(counts.advice_fetches, "entry")
        counts.connect_request_bytes = counts.advice_request_bytes = 100
    other = msgspec.msgpack.decode(msgspec.msgpack.encode(other), type=Counts)
    total = sum_states([one, other])
    assert total.connects == {ACCEPTED: 5, "name": 2}
    assert (total.received, total.sent, total.tunnels) == (50, 5, 2)
    assert (total.connect_request_bytes, total.advice_request_bytes) == (200, 200)
    assert total.advice_fetches == {"entry": 2}
    assert total.origins["https://a.example"].accepted == 5
    assert total.origins["https://a.example"].refused == {"name": 2}
    assert one.connects == {ACCEPTED: 2, "name": 1}
