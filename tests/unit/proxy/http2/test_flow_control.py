"""Flow control windows."""

import pytest

from headgate.proxy.http2.flow_control import (
    INITIAL_WINDOW,
    MAX_CONNECTION_WINDOW,
    MAX_WINDOW,
    ReceiveWindow,
    increased,
)


def test_a_receive_window_allows_its_size() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    assert receiving.receive(INITIAL_WINDOW - 1)
    assert receiving.receive(1)
    assert not receiving.receive(1)


def test_a_window_is_updated_after_half_of_it() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    receiving.receive(INITIAL_WINDOW // 2)
    assert receiving.update(0) == 0
    receiving.receive(1)
    assert receiving.update(0) == INITIAL_WINDOW // 2 + 1
    assert receiving.receive(INITIAL_WINDOW)
    assert not receiving.receive(1)


def test_held_bytes_are_not_returned_to_the_window() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    receiving.receive(INITIAL_WINDOW)
    assert receiving.update(INITIAL_WINDOW) == 0
    assert receiving.update(1000) == INITIAL_WINDOW - 1000
    assert receiving.update(1000) == 0
    assert receiving.receive(INITIAL_WINDOW - 1000)
    assert not receiving.receive(1)


def test_a_window_doubles_up_to_a_maximum() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    limits = []
    for _ in range(6):
        assert receiving.receive(receiving.limit)
        before = receiving.limit
        assert receiving.update(0, growth=MAX_CONNECTION_WINDOW) == before + receiving.limit - before
        limits.append(receiving.limit)
    assert limits[:2] == [2 * INITIAL_WINDOW, 4 * INITIAL_WINDOW]
    assert limits[-1] == limits[-2] == MAX_CONNECTION_WINDOW


def test_a_window_grows_by_the_allowed_growth() -> None:
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
def test_a_send_window_has_a_maximum(window: int, increment: int, then: int | None) -> None:
    assert increased(window, increment) == then
