import json
from fractions import Fraction
from pathlib import Path

import pytest

from headgate.errors import HeadgateError, RuleError
from headgate.limit.rule import Rule
from tests.quotes import quotes

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "limit" / "rules.json").read_text())

VALID = [
    ("10/s burst 20", 10, 1_000, 20),
    ("  10 / s   burst   20 ", 10, 1_000, 20),
    ("10/SEC BURST 20", 10, 1_000, 20),
    ("600 per 10min", 600, 600_000, 600),
    ("600 per 10 minutes", 600, 600_000, 600),
    ("600per10min", 600, 600_000, 600),
    ("1 per 500ms burst 3", 1, 500, 3),
    ("7/days", 7, 86_400_000, 7),
    ("7/2d burst 1", 7, 172_800_000, 1),
    ("1/hours", 1, 3_600_000, 1),
]


def test_spaces_case_units_and_plurals_are_accepted():
    for text, count, period_ms, burst in VALID:
        assert Rule.parse(text) == Rule(count, period_ms, burst), text


INVALID = [
    "10 burst 5", "10/fortnite", "1.5/s", "10/s burst 2.5", "10/1.5s", "10/mss", "10perhour or so", "١٠/s",
    "10/s\nburst", "9999999999/s", "10/s burst " + "9" * 5_000, "+10/s", "10 pers",
]  # fmt: skip


def test_invalid_rule_is_quoted_with_an_example():
    for text in (*INVALID, *VECTORS["bad"], 3, None, b"10/s"):
        with pytest.raises(RuleError) as caught:
            Rule.parse(text)
        assert repr(text) in str(caught.value), text
        assert "'10/s burst 20'" in str(caught.value), text
        assert isinstance(caught.value, HeadgateError), text
        assert isinstance(caught.value, ValueError), text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0.5/s", "1/2s burst 1"),
        ("1.5/s burst 4", "3/2s burst 4"),
        ("10r/s", "10/s burst 10"),
        ("30r/m burst=5", "30/min burst 5"),
        ("10 rps", "10/s burst 10"),
        ("10/s 20", "10/s burst 20"),
        ("10/s, burst=20", "10/s burst 20"),
        ("rate=10r/s burst=20 nodelay", "10/s burst 20"),
    ],
)
def test_a_rule_in_the_notation_of_other_servers_is_shown_as_it_has_to_be_written(text, written):
    with pytest.raises(RuleError, match=f"; write '{written}', in a form such as") as caught:
        Rule.parse(text)
    assert repr(text) in str(caught.value)
    Rule.parse(written)


INVALID_NUMBERS = [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 1), (1.5, 1, 1), (True, 1, 1)]


def test_numbers_of_a_rule_are_positive_integers():
    for numbers in INVALID_NUMBERS:
        with pytest.raises(RuleError, match="positive integer"):
            Rule(*numbers)


@pytest.mark.parametrize("text", ["10/s burst 20", "600/10min burst 600", "1/500ms burst 3", "3/2d burst 1"])
def test_rule_is_written_as_it_is_read(text):
    assert str(Rule.parse(text)) == text


@quotes(
    "smockron Definitions",
    "Rule: a formula involving a rate (requests per time period) and a burst (a number of requests which can be "
    "made before the rate takes effect).",
)
def test_rate_is_exact():
    fast, faster = Rule.parse("1500/s"), Rule.parse("2001/s")
    assert float(fast.exact_interval) == pytest.approx(1 / 1500, rel=1e-12)
    assert faster.interval > 0
    assert faster.interval < fast.interval


@pytest.mark.parametrize("text", ["3/s burst 3", "7/min burst 5", "1500/s", "11/h burst 9"])
def test_floats_are_rounded_down(text):
    rule = Rule.parse(text)
    assert rule.interval <= rule.exact_interval
    assert rule.window <= rule.exact_interval * rule.burst


def test_vectors_of_valid_rules():
    for case in VECTORS["good"]:
        rule = Rule.parse(case["text"])
        assert rule.exact_interval == Fraction(case["seconds_per_request"]), case["text"]
        assert rule.burst == case["burst"], case["text"]
        assert Rule.parse(str(rule)).exact_interval == rule.exact_interval, case["text"]
