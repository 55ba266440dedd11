"""The language-neutral vectors against the core."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from headgate.errors import RuleError
from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.limit.history import ALGORITHMS, new_history
from headgate.release import ASAP, Status

VECTORS = Path(__file__).parents[2] / "vectors" / "limit"
ALGORITHM_CASES = json.loads((VECTORS / "algorithms.json").read_text())
RULE_CASES = json.loads((VECTORS / "rules.json").read_text())


@pytest.mark.parametrize("case", RULE_CASES["good"], ids=lambda case: case["text"])
def test_rules_that_are(case):
    rule = Rule.parse(case["text"])
    assert rule.exact_interval == Fraction(case["seconds_per_request"])
    assert rule.burst == case["burst"]
    assert Rule.parse(str(rule)).exact_interval == rule.exact_interval


@pytest.mark.parametrize("text", RULE_CASES["bad"])
def test_rules_that_are_not(text):
    with pytest.raises(RuleError) as caught:
        Rule.parse(text)
    assert repr(text) in str(caught.value)
    assert Rule.parse("10/s burst 20")
    assert "'10/s burst 20'" in str(caught.value)


@pytest.mark.parametrize("case", ALGORITHM_CASES["releases"], ids=lambda case: f"{case['algorithm']}: {case['name']}")
def test_releases(case):
    algorithm, history = ALGORITHMS[case["algorithm"]]([Rule.parse(case["rule"])]), new_history()
    got = [algorithm.record(history, event.get("until", event["at"]), event["at"]) for event in case["events"]]
    assert [None if release == ASAP else release for release in got] == case["release"]


@pytest.mark.parametrize("case", ALGORITHM_CASES["replay"], ids=lambda case: f"{case['algorithm']}: {case['rule']}")
def test_replays(case):
    master = Master([Domain("log", (Rule.parse(case["rule"]),), case["algorithm"])])
    gatekeeper = Gatekeeper(master.account, max_delay=case["max_delay"])
    verdicts = [gatekeeper.admit("log", name, now=now) for now, name in case["events"]]
    totals, expect = gatekeeper.totals["log"], case["expect"]
    assert (totals.accepted, totals.delayed, totals.rejected) == tuple(
        expect[status] for status in ("accepted", "delayed", "rejected")
    )
    longest = max((verdict.wait for verdict in verdicts if verdict.status is Status.DELAYED), default=0.0)
    assert round(longest, 3) == expect["max_delay"]
