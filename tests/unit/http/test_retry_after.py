import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.http.date import retry_after, whole_seconds
from headgate.release import ASAP, NEVER

NOW = 784_111_777.25


VALID = [
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
]


def test_seconds_and_dates_are_release_times():
    for value, release in VALID:
        assert retry_after(value, now=NOW) == release, value[:40]


MALFORMED = [
    "", " ", "-5", "+5", "5.5", "5,", "120, 60", "5;x", "5 s", "1e3", "0x10", "1_0", "12 apples", "soon", "nan",
    "inf", "\u0665", "\uff15", "²", "5\n", "\x0b5", "5\x00", "\u2003 5", "soon\ud800",
    "Sun, 06 Nov 1994 08:50:37", "Sun, 06 Nov 1994 08:50:37 UTC", "sun, 06 nov 1994 08:50:37 gmt",
    "Sun, 32 Nov 1994 08:50:37 GMT", "1994-11-06T08:50:37Z", "Sun, 06 Nov 1994 08:50:37 GMT, 5",
]  # fmt: skip


def test_malformed_value_and_past_date_make_no_hold():
    for value in (*MALFORMED, "Sun, 06 Nov 1994 08:49:37 GMT", "Thu Jan  1 00:00:00 1970"):
        assert retry_after(value, now=NOW) == ASAP, value
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now=784_111_777.0) == ASAP


def test_date_is_compared_with_the_given_time(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: pytest.fail("a core read the clock"))
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now=5.0) == 784_111_777.0


def test_century_of_a_two_digit_year_depends_on_the_given_time():
    assert retry_after("Tuesday, 31-Dec-69 23:58:20 GMT", now=1_763_683_200) == 3_155_759_900.0
    assert retry_after("Wednesday, 31-Dec-69 23:58:20 GMT", now=5.0) == ASAP


@given(st.floats(0, 4e9), st.integers(0, 10**15))
def test_release_is_never_later_than_the_seconds(now, seconds):
    release = retry_after(str(seconds), now=now)
    assert release - now <= seconds
    assert release == pytest.approx(now + seconds)


@given(st.text())
def test_any_text_is_digits_or_makes_no_hold(value):
    assert retry_after(value, now=NOW) == ASAP or value.strip("\t ").isdigit()


def test_whole_seconds_round_up_but_ignore_floating_point_error():
    for seconds, expected in (
        (-5.0, 0),
        (0.0, 0),
        (0.001, 1),
        (1.0, 1),
        (1.0 + 2.4e-7, 1),
        (1.00001, 2),
        (1_700_000_005.1 - 1_700_000_000.1, 5),
        (math.inf, 999_999_999_999_999),
        (math.nan, 999_999_999_999_999),
        (-math.inf, 0),
        (1e300, 999_999_999_999_999),
    ):
        assert whole_seconds(seconds) == expected, seconds
