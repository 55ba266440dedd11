"""Flow control in numbers."""

import pytest

from headgate.proxy.http2.flow_control import (
    INITIAL_WINDOW,
    MAX_CONNECTION_WINDOW,
    MAX_WINDOW,
    ReceiveWindow,
    increased,
)


def test_the_other_side_may_send_as_much_as_it_was_told() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    assert receiving.receive(INITIAL_WINDOW - 1)
    assert receiving.receive(1)
    assert not receiving.receive(1)


def test_a_window_is_opened_anew_when_half_of_it_is_gone() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    receiving.receive(INITIAL_WINDOW // 2)
    assert receiving.update(0) == 0
    receiving.receive(1)
    assert receiving.update(0) == INITIAL_WINDOW // 2 + 1
    assert receiving.receive(INITIAL_WINDOW)
    assert not receiving.receive(1)


def test_what_is_kept_stays_out_of_it() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    receiving.receive(INITIAL_WINDOW)
    assert receiving.update(INITIAL_WINDOW) == 0
    assert receiving.update(1000) == INITIAL_WINDOW - 1000
    assert receiving.update(1000) == 0
    assert receiving.receive(INITIAL_WINDOW - 1000)
    assert not receiving.receive(1)


def test_a_window_at_most_doubles_and_has_an_end() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    limits = []
    for _ in range(6):
        assert receiving.receive(receiving.limit)
        before = receiving.limit
        assert receiving.update(0, growth=MAX_CONNECTION_WINDOW) == before + receiving.limit - before
        limits.append(receiving.limit)
    assert limits[:2] == [2 * INITIAL_WINDOW, 4 * INITIAL_WINDOW]
    assert limits[-1] == limits[-2] == MAX_CONNECTION_WINDOW


def test_a_window_grows_by_what_is_granted() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    receiving.receive(INITIAL_WINDOW)
    assert receiving.update(0, growth=10) == INITIAL_WINDOW + 10
    receiving.receive(INITIAL_WINDOW)
    assert receiving.update(0, growth=-5) == INITIAL_WINDOW
    assert receiving.limit == INITIAL_WINDOW + 10


@pytest.mark.parametrize(
    ("window", "increment", "then"),
    [(0, 5, 5), (-10, 4, -6), (1, MAX_WINDOW - 1, MAX_WINDOW), (1, MAX_WINDOW, None), (5, -9, -4)],
)
def test_no_window_is_wider_than_any_may_be(window: int, increment: int, then: int | None) -> None:
    assert increased(window, increment) == then
