"""Flow control in numbers."""

import pytest

from headgate.proxy.http2.flow_control import FIRST_WINDOW, LARGEST_WINDOW, MOST_OF_ALL, Receiving, widened


def test_the_other_side_may_send_as_much_as_it_was_told() -> None:
    receiving = Receiving(MOST_OF_ALL)
    assert receiving.take(FIRST_WINDOW - 1)
    assert receiving.take(1)
    assert not receiving.take(1)


def test_a_window_is_opened_anew_when_half_of_it_is_gone() -> None:
    receiving = Receiving(MOST_OF_ALL)
    receiving.take(FIRST_WINDOW // 2)
    assert receiving.increment(0) == 0
    receiving.take(1)
    assert receiving.increment(0) == FIRST_WINDOW // 2 + 1
    assert receiving.take(FIRST_WINDOW)
    assert not receiving.take(1)


def test_what_is_kept_stays_out_of_it() -> None:
    receiving = Receiving(MOST_OF_ALL)
    receiving.take(FIRST_WINDOW)
    assert receiving.increment(FIRST_WINDOW) == 0
    assert receiving.increment(1000) == FIRST_WINDOW - 1000
    assert receiving.increment(1000) == 0
    assert receiving.take(FIRST_WINDOW - 1000)
    assert not receiving.take(1)


def test_a_window_at_most_doubles_and_has_an_end() -> None:
    receiving = Receiving(MOST_OF_ALL)
    limits = []
    for _ in range(6):
        assert receiving.take(receiving.limit)
        before = receiving.limit
        assert receiving.increment(0, growth=MOST_OF_ALL) == before + receiving.limit - before
        limits.append(receiving.limit)
    assert limits[:2] == [2 * FIRST_WINDOW, 4 * FIRST_WINDOW]
    assert limits[-1] == limits[-2] == MOST_OF_ALL


def test_a_window_grows_by_what_is_granted() -> None:
    receiving = Receiving(MOST_OF_ALL)
    receiving.take(FIRST_WINDOW)
    assert receiving.increment(0, growth=10) == FIRST_WINDOW + 10
    receiving.take(FIRST_WINDOW)
    assert receiving.increment(0, growth=-5) == FIRST_WINDOW
    assert receiving.limit == FIRST_WINDOW + 10


@pytest.mark.parametrize(
    ("window", "increment", "then"),
    [(0, 5, 5), (-10, 4, -6), (1, LARGEST_WINDOW - 1, LARGEST_WINDOW), (1, LARGEST_WINDOW, None), (5, -9, -4)],
)
def test_no_window_is_wider_than_any_may_be(window: int, increment: int, then: int | None) -> None:
    assert widened(window, increment) == then
