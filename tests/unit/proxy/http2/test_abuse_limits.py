"""Limits of abusive frames."""

import itertools

import pytest

from headgate.proxy.http2 import abuse_limits as floods
from headgate.proxy.http2.abuse_limits import ABUSE_LIMITS, AbuseKind, AbuseLimit, AbuseLimiter
from headgate.proxy.http2.frames import ErrorCode, Http2Error


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
    monkeypatch.setattr(floods, "ABUSE_LIMITS", {"pings": AbuseLimit(2, 8)})
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
