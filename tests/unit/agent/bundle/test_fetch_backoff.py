import pytest

from headgate.agent.bundle.fetcher import FetchBackoff
from headgate.errors import FetchError

NOW = 1_800_000_000.0
FIRST, SECOND, THIRD = (0.7 * 1.4**count for count in (1, 2, 3))


def fail(backoff, retry_after="", *, sent=NOW, now=NOW, draw=0.0):
    backoff.failed("https://a.example/x.wbn: why", retry_after, sent=sent, now=now, draw=draw)


def held(backoff, now):
    """Say for how long it is held, as the sentence does; None where it is not."""
    try:
        backoff.check(now=now)
    except FetchError as error:
        return str(error).rpartition("; ")[2]
    return None


def pause(backoff, now=NOW, most=2_000.0):
    """Give the seconds until it may be fetched, to a millisecond."""
    step = 0.001
    low, high = 0, round(most / step)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if held(backoff, now + middle * step) else (low, middle)
    return low * step


def test_without_a_failure_nothing_is_held():
    assert held(FetchBackoff(), NOW) is None


def test_each_failure_makes_the_pause_longer_and_a_draw_shorter():
    backoff = FetchBackoff()
    for count, (expected, now) in enumerate(zip((FIRST, SECOND, THIRD), (NOW, NOW + 10, NOW + 20), strict=True)):
        fail(backoff, sent=now, now=now)
        assert pause(backoff, now) == pytest.approx(expected, abs=0.002), count
    other = FetchBackoff()
    fail(other, draw=0.999)
    assert pause(other) == pytest.approx(FIRST * 0.9, abs=0.002)


def test_the_sentence_says_what_failed_and_for_how_long_it_is_left_alone():
    backoff = FetchBackoff()
    fail(backoff, "30")
    fail(backoff)
    with pytest.raises(FetchError, match=r"^https://a\.example/x\.wbn: why; it may be fetched again in 30\.0 s$"):
        backoff.check(now=NOW)
    fail(backoff, "9" * 400)
    assert held(backoff, NOW + 1e12) == "it is not fetched again"


@pytest.mark.parametrize("value", ["Fri, 15 Jan 2027 08:01:40 GMT", "100"])
def test_a_retry_after_is_a_date_or_seconds(value):
    backoff = FetchBackoff()
    fail(backoff, value)
    assert pause(backoff) == pytest.approx(100.0, abs=0.002)


@pytest.mark.parametrize("value", ["", "soon", "-5", "0", "Fri, 15 Jan 2020 08:01:40 GMT"])
def test_a_retry_after_that_asks_for_nothing_leaves_the_backoff(value):
    backoff = FetchBackoff()
    fail(backoff, value)
    assert pause(backoff) == pytest.approx(FIRST, abs=0.002)


def test_a_request_that_is_sent_at_the_instant_of_the_last_failure_counts():
    backoff = FetchBackoff()
    fail(backoff)
    fail(backoff)
    assert pause(backoff) == pytest.approx(SECOND, abs=0.002)


def test_requests_in_parallel_are_one_failure():
    backoff = FetchBackoff()
    for now in (NOW + 0.1, NOW + 0.2, NOW + 0.3):
        fail(backoff, sent=NOW, now=now)
    assert pause(backoff, NOW + 0.3) == pytest.approx(FIRST, abs=0.002)


def test_no_later_failure_shortens_a_retry_after():
    backoff = FetchBackoff()
    fail(backoff, "120", sent=NOW, now=NOW)
    fail(backoff, sent=NOW - 1, now=NOW + 20)
    assert pause(backoff, NOW + 20) == pytest.approx(100.0, abs=0.002)


def test_a_success_takes_one_failure_back_and_ends_no_pause():
    backoff = FetchBackoff()
    fail(backoff)
    fail(backoff, sent=NOW + 10, now=NOW + 10)
    backoff.succeeded()
    assert held(backoff, NOW + 10) is not None
    fail(backoff, sent=NOW + 20, now=NOW + 20)
    assert pause(backoff, NOW + 20) == pytest.approx(SECOND, abs=0.002)
    for _ in range(5):
        backoff.succeeded()
    assert held(backoff, NOW + 20) is not None
    fail(backoff, sent=NOW + 30, now=NOW + 30)
    assert pause(backoff, NOW + 30) == pytest.approx(FIRST, abs=0.002)


def test_a_clock_that_is_set_back_makes_the_pause_no_longer_than_it_was():
    backoff = FetchBackoff()
    fail(backoff, "100")
    fail(backoff, sent=NOW, now=NOW - 3600)
    assert held(backoff, NOW - 7200) == "it may be fetched again in 100.0 s"
    assert held(backoff, NOW - 7200 + 99) is not None
    assert held(backoff, NOW - 7200 + 100) is None


def test_the_longest_pause_is_the_policys():
    backoff = FetchBackoff()
    for count in range(3_000):
        fail(backoff, sent=NOW + 1_000 * count, now=NOW + 1_000 * count)
    assert pause(backoff, NOW + 1_000 * 2_999) == pytest.approx(900.0, abs=0.002)
