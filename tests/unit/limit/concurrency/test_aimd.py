"""The learned limit: what each round of responses makes of it."""

import pytest

from headgate.limit.concurrency.aimd import DECREASE, FIRST_LIMIT, MIN_REQUESTS, AimdLimit

TARGET = 0.25


def limit(ceiling: int = 1000) -> AimdLimit:
    return AimdLimit(TARGET, ceiling)


def run_round(law: AimdLimit, latency: float, in_flight: float | None = None, *, rounds: int = 1) -> float:
    """Give a limit rounds of responses, all at the limit unless `in_flight` says otherwise; returns the limit."""
    for _ in range(rounds):
        for _ in range(max(MIN_REQUESTS, int(law.limit + 0.999))):
            law.responded(latency, int(law.limit if in_flight is None else in_flight))
    return law.limit


def test_slow_start_doubles_until_the_mean_is_above_the_target_and_then_adds_one() -> None:
    law = limit()
    assert law.limit == FIRST_LIMIT == 4.0
    assert [run_round(law, TARGET) for _ in range(3)] == [8.0, 16.0, 32.0]
    assert run_round(law, 1.01 * TARGET) == pytest.approx(DECREASE * 32.0)
    before = law.limit
    assert run_round(law, TARGET, rounds=2) == pytest.approx(before + 2.0)


def test_a_round_has_as_many_requests_as_the_limit_and_at_least_ten() -> None:
    law = limit()
    assert [law.responded(0.1, 4) for _ in range(MIN_REQUESTS)] == [False] * (MIN_REQUESTS - 1) + [True]
    run_round(law, 0.1)
    assert law.limit == 16.0
    assert [law.responded(0.1, 16) for _ in range(16)] == [False] * 15 + [True]


def test_a_limit_that_is_not_used_stays() -> None:
    law = limit()
    run_round(law, 0.1, rounds=2)
    assert run_round(law, 0.1, 7) == 16.0
    assert run_round(law, 0.1, 8) == 32.0


def test_a_few_timeouts_do_not_lower_the_limit_and_many_do() -> None:
    law = limit()
    run_round(law, 0.1, rounds=4)
    before = law.limit
    for number in range(int(before)):
        law.responded(60.0 if number % 10 == 0 else 0.1, 60)
    assert law.limit > before
    assert run_round(law, 60.0) < before * 2
    assert law.latency == pytest.approx(4 * TARGET)


def test_the_limit_stays_between_one_and_the_ceiling() -> None:
    law = limit(ceiling=20)
    assert run_round(law, 0.1, rounds=5) == 20.0
    assert run_round(law, 1.0, 2, rounds=60) == 1.0
    assert AimdLimit(TARGET, 2).limit == 2.0


def test_an_origin_that_is_slow_without_load_is_no_reason_for_a_limit_of_one() -> None:
    law = limit()
    run_round(law, 0.5, 1, rounds=1)
    assert law.target == pytest.approx(2 * 0.5)
    assert run_round(law, 0.9, 4) == pytest.approx(2 * DECREASE * FIRST_LIMIT), "slow start again"
    assert law.target > TARGET
    run_round(law, TARGET)
    assert law.target == TARGET


def test_a_limit_that_nothing_enforces_is_what_littles_law_gives() -> None:
    law = limit()
    assert run_round(law, 2.0 * TARGET, 100) == pytest.approx(50.0)
    assert AimdLimit(TARGET, 30).limit == 4.0
    low = limit(ceiling=30)
    assert run_round(low, 2.0 * TARGET, 100) == 30.0


def test_other_parameters_keep_what_was_learned() -> None:
    law = limit()
    run_round(law, 0.1, rounds=3)
    law.reconfigure(0.05, 20)
    assert law.limit == 20.0
    assert run_round(law, 0.1) == 18.0
