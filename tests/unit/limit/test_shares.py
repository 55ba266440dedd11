import pytest

from headgate.limit.shares import deal, fair_shares, is_stable, next_want


@pytest.mark.parametrize(
    ("total", "wants", "shares"),
    [
        (500.0, [], []),
        (500.0, [700.0], [500.0]),
        (500.0, [100.0], [500.0]),
        (500.0, [700.0, 210.0], [290.0, 210.0]),
        (500.0, [210.0, 700.0], [210.0, 290.0]),
        (500.0, [100.0, 200.0], [200.0, 300.0]),
        (90.0, [10.0, 60.0, 60.0], [10.0, 40.0, 40.0]),
        (-3.0, [10.0, 60.0], [0.0, 0.0]),
    ],
)
def test_the_smaller_claim_is_met_first_and_what_remains_is_spread_equally(total, wants, shares):
    assert fair_shares(total, wants) == pytest.approx(shares)


def test_a_want_rises_at_once_and_sinks_by_half():
    assert next_want(200.0, want=100.0, share=100.0, rate=500.0) == pytest.approx(210.0)
    assert next_want(0.0, want=100.0, share=100.0, rate=500.0) == pytest.approx(55.0)
    # What was wanted beyond the share is forgotten.
    assert next_want(0.0, want=500.0, share=100.0, rate=500.0) == pytest.approx(55.0)


def test_shares_are_stable_within_three_percent():
    assert is_stable([100.0, 400.0], [102.9, 397.1])
    assert not is_stable([100.0, 400.0], [103.1, 396.9])
    assert not is_stable([0.0, 500.0], [10.0, 490.0])


def test_tokens_are_dealt_by_the_largest_remainder():
    assert deal(50, [290.0, 210.0]) == [29, 21]
    assert deal(1, [2.0, 3.0]) == [0, 1]
    assert deal(1, [3.0, 3.0]) == [1, 0]
    assert deal(5, [0.0, 0.0]) == [0, 0]
