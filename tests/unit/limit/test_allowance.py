import pytest

from headgate.limit.rule import Rule
from headgate.limit.shares import allowance


def rules(*texts):
    return [Rule.parse(text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "available", "rate", "tokens"),
    [
        (["10/s burst 20"], [20.0], 10.0, 20),
        (["10/s burst 20"], [7.9], 10.0, 7),
        (["10/s burst 20"], [6.9999999], 10.0, 7),
        # At least a token, and as many as come in a tenth of a second.
        (["10/s burst 20"], [-3.0], 10.0, 1),
        (["500/s burst 50"], [0.0], 500.0, 50),
        (["500/s burst 200"], [0.0], 500.0, 50),
        (["500/s burst 200"], [120.0], 500.0, 120),
        # The second rule admits 40 more in five seconds than the tokens, and one per second.
        (["10/s burst 10", "60/min burst 50"], [10.0, 50.0], 9.0, 10),
        (["10/s burst 10", "60/min burst 50"], [10.0, 0.0], 1.0, 1),
    ],
)
def test_one_token_bucket_obeys_all_rules(texts, available, rate, tokens):
    result = allowance(rules(*texts), available, 0.0)
    assert (result.rate, result.tokens) == (pytest.approx(rate), tokens)
    assert result.burst == min(rule.burst for rule in rules(*texts))


def test_a_hold():
    assert allowance(rules("1/s"), [0.0], 2.5).hold == 2.5
