import json
from pathlib import Path

import pytest

from headgate.limit.history import ALGORITHMS, PUBLISHED, Gcra, Log, Smockron, new_history
from headgate.limit.rule import Rule
from headgate.release import ASAP
from tests.quotes import quotes


def rules(*texts):
    return [Rule.parse(text) for text in texts]


@quotes(
    "smockron Logic", "this ensures that the policy can be enforced with a history of no more than `burst` timestamps."
)
def test_log_with_a_burst_of_one_keeps_the_latest():
    algorithm, history = Log(rules("1/s burst 1")), new_history()
    assert algorithm.record(history, 10.0, 10.0) == 11.0
    assert algorithm.record(history, 5.0, 10.0) == 11.0
    assert list(history[1:]) == [10.0]


def test_log_with_several_rules_expires_after_the_longest_window():
    """Were it forgotten after the shortest, an hourly limit would start afresh after a second's pause."""
    algorithm, history = Log(rules("1/s burst 1", "2/h burst 2", "1/min burst 1")), new_history()
    algorithm.record(history, 100.0, 100.0)
    assert algorithm.expiry(history) == 100.0 + 3_600.0


@pytest.mark.parametrize("start", [100.0, 1_700_000_000.125])
@pytest.mark.parametrize("rule", ["1/s burst 2", "3/s burst 2"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_history_at_its_expiry_equals_a_new_one(name, rule, start):
    algorithm, old, new = ALGORITHMS[name](rules(rule)), new_history(), new_history()
    for _ in range(3):
        old[PUBLISHED] = max(old[PUBLISHED], algorithm.record(old, start, start))
    now = algorithm.expiry(old)
    for _ in range(5):
        assert algorithm.record(old, now, now) == algorithm.record(new, now, now)


def test_log_does_not_expire_before_its_published_hold():
    algorithm, history = Log(rules("1/s burst 1")), new_history()
    history[PUBLISHED] = algorithm.record(history, 100.0, 100.0) + 60.0
    assert algorithm.expiry(history) == 161.0


def test_gcra_stores_one_number_per_rule_and_smockron_three():
    for algorithm, size in ((Gcra(rules("1/s burst 9", "1/min")), 3), (Smockron(rules("1/s burst 9", "1/min")), 7)):
        history = new_history()
        for moment in range(50):
            algorithm.record(history, float(moment), float(moment))
        assert len(history) == size


def test_smockron_expires_as_the_original_database():
    """The value expires one window after the later of timestamp and clock: then the procedure starts afresh."""
    kept, expired = new_history(), new_history()
    algorithm = Smockron(rules("1/s burst 2"))
    for history in (kept, expired):
        for _ in range(4):
            algorithm.record(history, 10.0, 10.0)
    assert algorithm.record(kept, 12.0, 12.0) == 13.0
    assert algorithm.record(expired, 12.001, 12.001) == ASAP


def test_smockron_does_not_drift_in_a_long_chain():
    """Nine intervals of 7/9 s are 7 s, however often: the value lives on at its very expiry, and not after it."""
    algorithm, history = Smockron(rules("9 per 7s burst 2")), new_history()
    hold = now = 1_700_000_000.0
    for _ in range(9 * 40 + 2):
        release = algorithm.record(history, hold, now)
        hold = max(hold, release)
    assert release == now + 7 * 40


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "limit" / "algorithms.json").read_text())


def test_vectors_of_release_times():
    for case in VECTORS["releases"]:
        algorithm, history = ALGORITHMS[case["algorithm"]]([Rule.parse(case["rule"])]), new_history()
        releases = [algorithm.record(history, event.get("until", event["at"]), event["at"]) for event in case["events"]]
        assert [None if release == ASAP else release for release in releases] == case["release"], case["name"]
