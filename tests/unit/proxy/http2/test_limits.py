"""Flow control windows, and limits of abusive frames."""

import itertools

import pytest

from headgate.proxy.http2 import limits as module
from headgate.proxy.http2.frames import ErrorCode, Http2Error
from headgate.proxy.http2.limits import (
    ABUSE_LIMITS,
    INITIAL_WINDOW,
    MAX_CONNECTION_WINDOW,
    MAX_WINDOW,
    AbuseKind,
    AbuseLimit,
    AbuseLimiter,
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


def borne(counted: AbuseLimiter, kind: AbuseKind, *, now: float, step: float = 0) -> int:
    """How many more there may be, the first one now and each of the others a step later."""
    numbers = itertools.count()

    def count_on() -> None:
        for number in numbers:
            counted.count(kind, now=now + number * step)

    with pytest.raises(Http2Error, match=kind) as found:
        count_on()
    assert found.value.code is ErrorCode.ENHANCE_YOUR_CALM
    return next(numbers) - 1


@pytest.mark.parametrize("kind", ABUSE_LIMITS)
def test_a_burst_and_a_rate_are_allowed(kind: AbuseKind) -> None:
    if kind == "head bytes":
        return
    allowance = ABUSE_LIMITS[kind]
    counted = AbuseLimiter()
    assert borne(counted, kind, now=50.0) == allowance.burst
    then = allowance.burst / allowance.per_second  # and nothing is remembered
    assert borne(counted, kind, now=50.0 + 2 * then) == allowance.burst
    other: AbuseKind = "pings" if kind == "settings" else "settings"
    assert borne(counted, other, now=50.0) == ABUSE_LIMITS[other].burst


def test_the_rate_is_allowed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ABUSE_LIMITS", {"pings": AbuseLimit(2, 8)})
    counted = AbuseLimiter()
    for number in range(1000):
        counted.count("pings", now=number / 8)
    assert borne(counted, "pings", now=125, step=1 / 12) == 4


def test_an_amount_is_counted() -> None:
    counted = AbuseLimiter()
    counted.count("head bytes", now=0, amount=1 << 20)
    with pytest.raises(Http2Error):
        counted.count("head bytes", now=0, amount=1)


def test_refunds_are_subtracted() -> None:
    counted = AbuseLimiter()
    counted.refund("WINDOW_UPDATE", 10)  # nothing was counted
    for _ in range(10_000):
        counted.count("WINDOW_UPDATE", now=0)
        counted.refund("WINDOW_UPDATE", 4)
    assert borne(counted, "WINDOW_UPDATE", now=0) == ABUSE_LIMITS["WINDOW_UPDATE"].burst
