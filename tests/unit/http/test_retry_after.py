"""Retry-After (RFC 9110, section 10.2.3) as a release time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.http.retry_after import retry_after
from headgate.release import ASAP, NEVER

NOW = 784_111_777.25


@pytest.mark.parametrize(
    ("value", "release"),
    [
        ("120", NOW + 120),
        (" 120\t", NOW + 120),
        ("0", NOW),
        ("0120", NOW + 120),
        ("9" * 400, NEVER),
        ("9" * 6_000, NEVER),
        ("9" * 1_000_000, NEVER),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 784_111_837.0),
        (" Sun, 06 Nov 1994 08:50:37 GMT\t", 784_111_837.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 784_111_837.0),
        ("Sun Nov  6 08:50:37 1994", 784_111_837.0),
    ],
)
def test_seconds_and_dates_are_release_times(value: str, release: float) -> None:
    assert retry_after(value, now=NOW) == release


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "-5", "+5", "5.5", "5,", "120, 60", "5;x", "5 s", "1e3", "0x10", "1_0", "12 apples", "soon", "nan",
        "inf", "\u0665", "\uff15", "²", "5\n", "\x0b5", "5\x00", "\u2003 5", "soon\ud800",
        "Sun, 06 Nov 1994 08:50:37", "Sun, 06 Nov 1994 08:50:37 UTC", "sun, 06 nov 1994 08:50:37 gmt",
        "Sun, 32 Nov 1994 08:50:37 GMT", "1994-11-06T08:50:37Z", "Sun, 06 Nov 1994 08:50:37 GMT, 5",
    ],
)  # fmt: skip
def test_malformed_values_are_ignored(value: str) -> None:
    assert retry_after(value, now=NOW) == ASAP


@pytest.mark.parametrize("value", ["Sun, 06 Nov 1994 08:49:37 GMT", "Thu Jan  1 00:00:00 1970"])
def test_a_past_date_is_ignored(value: str) -> None:
    assert retry_after(value, now=NOW) == ASAP


def test_a_date_that_is_now_is_ignored() -> None:
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now=784_111_777.0) == ASAP


def test_a_date_is_compared_with_the_time_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: pytest.fail("a core read the clock"))
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now=5.0) == 784_111_777.0


def test_now_decides_the_century_of_a_year_of_two_digits() -> None:
    assert retry_after("Tuesday, 31-Dec-69 23:58:20 GMT", now=1_763_683_200) == 3_155_759_900.0
    assert retry_after("Wednesday, 31-Dec-69 23:58:20 GMT", now=5.0) == ASAP


@given(st.floats(0, 4e9), st.integers(0, 10**15))
def test_seconds_are_never_rounded_up(now: float, seconds: int) -> None:
    release = retry_after(str(seconds), now=now)
    assert release - now <= seconds
    assert release == pytest.approx(now + seconds)


@given(st.text())
def test_no_value_raises(value: str) -> None:
    assert retry_after(value, now=NOW) == ASAP or value.strip("\t ").isdigit()
