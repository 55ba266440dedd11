import pytest

from headgate.errors import ConfigurationError
from headgate.throttle.budget import RetryBudget


def test_it_starts_full_and_empties():
    budget = RetryBudget(3, most=9)
    assert not budget
    assert [budget.spend("http://a") for _ in range(5)] == [True, True, True, False, False]
    assert budget.left("http://a") == 0
    assert budget.left("http://b") == 3


def test_ten_successes_earn_one_retry():
    budget = RetryBudget(3, most=9)
    while budget.spend("http://a"):
        pass
    for _ in range(9):
        budget.earn("http://a")
    assert not budget.spend("http://a")
    budget.earn("http://a")
    assert budget.spend("http://a")
    assert not budget.spend("http://a")


def test_no_more_is_earned_than_there_was_and_a_full_one_is_not_stored():
    budget = RetryBudget(2, most=9)
    for _ in range(100):
        budget.earn("http://a")
    assert not budget
    assert [budget.spend("http://a") for _ in range(3)] == [True, True, False]
    for _ in range(19):
        budget.earn("http://a")
    assert budget
    budget.earn("http://a")
    assert not budget
    assert budget.left("http://a") == 2


def test_it_is_bounded():
    budget = RetryBudget(1, most=2)
    assert all(budget.spend(origin) for origin in ("http://a", "http://b", "http://c"))
    assert not budget.spend("http://c")
    assert not budget.spend("http://b")
    assert budget.spend("http://a")


def test_to_clear_is_to_fill():
    budget = RetryBudget(1, most=2)
    budget.spend("http://a")
    budget.clear()
    assert budget.left("http://a") == 1


def test_none_at_all_is_a_budget_and_fewer_are_not():
    assert not RetryBudget(0, most=2).spend("http://a")
    with pytest.raises(ConfigurationError, match=r"^retry_budget: -1"):
        RetryBudget(-1, most=2)
