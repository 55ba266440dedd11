"""How much of what serves nobody is borne."""

import itertools

import pytest
from h2.errors import ErrorCodes

from headgate.proxy.http2 import abuse_limits as floods
from headgate.proxy.http2.abuse_limits import ALLOWANCES, Allowance, Floods, Nuisance
from headgate.proxy.http2.frames import Violation


def borne(counted: Floods, kind: Nuisance, *, now: float, step: float = 0) -> int:
    """How many more there may be, the first one now and each of the others a step later."""
    numbers = itertools.count()

    def count_on() -> None:
        for number in numbers:
            counted.count(kind, now=now + number * step)

    with pytest.raises(Violation, match=kind) as found:
        count_on()
    assert found.value.code is ErrorCodes.ENHANCE_YOUR_CALM
    return next(numbers) - 1


@pytest.mark.parametrize("kind", ALLOWANCES)
def test_so_many_at_once_and_so_many_a_second(kind: Nuisance) -> None:
    if kind == "head bytes":
        return
    allowance = ALLOWANCES[kind]
    counted = Floods()
    assert borne(counted, kind, now=50.0) == allowance.at_once
    then = allowance.at_once / allowance.a_second  # and nothing is remembered
    assert borne(counted, kind, now=50.0 + 2 * then) == allowance.at_once
    other: Nuisance = "pings" if kind == "settings" else "settings"
    assert borne(counted, other, now=50.0) == ALLOWANCES[other].at_once


def test_a_client_that_keeps_to_the_pace_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floods, "ALLOWANCES", {"pings": Allowance(2, 8)})
    counted = Floods()
    for number in range(1000):
        counted.count("pings", now=number / 8)
    assert borne(counted, "pings", now=125, step=1 / 12) == 4


def test_more_than_one_may_be_counted_at_once() -> None:
    counted = Floods()
    counted.count("head bytes", now=0, amount=1 << 20)
    with pytest.raises(Violation):
        counted.count("head bytes", now=0, amount=1)


def test_what_has_a_reason_is_forgiven() -> None:
    counted = Floods()
    counted.forgive("WINDOW_UPDATE", 10)  # nothing was counted
    for _ in range(10_000):
        counted.count("WINDOW_UPDATE", now=0)
        counted.forgive("WINDOW_UPDATE", 4)
    assert borne(counted, "WINDOW_UPDATE", now=0) == ALLOWANCES["WINDOW_UPDATE"].at_once
