import pytest

from headgate.origin.gateway import fetch_bound
from headgate.origin.gateway.fetch_bound import CLIENT_FETCHES, TOTAL_RATE, FetchBound, FetchRefusal

NOW = 1_700_000_000.0
HERE, THERE = b"192.0.2.1", b"192.0.2.2"


def bound(draw: float = 0.0, max_age: float = 600.0) -> FetchBound:
    return FetchBound(max_age, lambda: draw)


def test_an_agent_that_fetches_once_per_max_age_is_never_refused():
    counting = bound()
    assert all(counting.refusal(HERE, now=NOW + 600 * number) is None for number in range(5_000))


def test_an_address_that_asks_too_often_is_refused_for_a_tenth_of_the_max_age():
    counting = bound()
    assert [counting.refusal(HERE, now=NOW) for _ in range(CLIENT_FETCHES)] == [None] * CLIENT_FETCHES
    assert counting.refusal(HERE, now=NOW + 0.1) == FetchRefusal(429, 60)
    assert counting.refusal(HERE, now=NOW + 50.5) == FetchRefusal(429, 10)
    # Those that it may make after the pause are as many as it has waited for.
    later = [counting.refusal(HERE, now=NOW + 60.2) for _ in range(101)]
    assert later == [None] * 100 + [FetchRefusal(429, 60)]


def test_other_addresses_are_served_meanwhile():
    counting = bound()
    for _ in range(10 * CLIENT_FETCHES):
        counting.refusal(HERE, now=NOW)
    # What is refused takes nothing of the total, and that is what the first address has left of it.
    assert counting.refusal(THERE, now=NOW + 1) is None


@pytest.mark.parametrize(("draw", "seconds"), [(0.0, 60), (0.5, 90), (0.999, 120)])
def test_more_fetches_than_the_process_serves_are_spread(draw: float, seconds: int):
    counting = bound(draw)
    served = [counting.refusal(b"%d" % number, now=NOW) for number in range(int(TOTAL_RATE) + 1)]
    assert served[:-1] == [None] * int(TOTAL_RATE)
    assert served[-1] == FetchRefusal(503, seconds)
    assert counting.refusal(HERE, now=NOW + 0.1) is None


def test_the_tables_are_bounded(monkeypatch):
    monkeypatch.setattr(fetch_bound, "MAX_CLIENTS", 3)
    monkeypatch.setattr(fetch_bound, "CLIENT_FETCHES", 1)
    counting = bound()
    for number in range(10):
        counting.refusal(b"%d" % number, now=NOW)
        counting.refusal(b"%d" % number, now=NOW)
    assert len(counting) == 3
    assert len(counting._refused_until) == 3
