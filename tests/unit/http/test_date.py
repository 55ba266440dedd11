import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.http.date import parse_http_date, retry_after, whole_seconds
from headgate.release import ASAP, NEVER

DATES = [
    (b"Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
    (b"Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
    (b"Sun Nov  6 08:49:37 1994", 784_111_777),
    (b"Wednesday, 06-Nov-24 08:49:37 GMT", 1_730_882_977),
    (b"Thu, 01 Jan 1970 00:00:00 GMT", 0),
    (b"Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
    (b"Sun, 31 Feb 1994 08:49:37 GMT", None),
    (b"Sun, 00 Nov 1994 08:49:37 GMT", None),
    (b"Sun, 06 Nov 1994 25:49:37 GMT", None),
    (b"Sun, 06 Nov 1994 24:00:00 GMT", None),
    (b"Sun, 06 Nov 1994 23:59:59 GMT", 784_166_399),
    (b"Thursday, 01-Jan-70 00:00:00 GMT", 0),
    (b"Tuesday, 01-Jan-69 00:00:00 GMT", 3_124_224_000),
    (b"Sun, 06 Nov 1994 08:49:61 GMT", None),
    (b"Sun, 06 Nov 1969 08:49:37 GMT", None),
    (b"Sun, 06 Nov 0000 08:49:37 GMT", None),
    (b"Sun, 06 Nov 1994 08:49:37 +0000", None),
    (b"Sun, 06 Nov 1994 08:49:37", None),
    (b"1994-11-06T08:49:37Z", None),
    (b"Foo, 06 Nov 1994 08:49:37 GMT", None),
    (b"sun, 06 nov 1994 08:49:37 gmt", None),
    (b"Sun, 06-Nov-94 08:49:37 GMT", None),
    (b"Sunday Nov  6 08:49:37 1994", None),
    (b"Mon, 06 Nov 1994 08:49:37 GMT", 784_111_777),
    (b"", None),
]


def test_dates():
    for value, seconds in DATES:
        assert parse_http_date(value) == seconds, value


NOW = 1_763_683_200  # 2025-11-21 00:00:00


TWO_DIGIT_YEARS = [
    (b"Friday, 21-Nov-25 00:02:00 GMT", NOW, NOW + 120),
    (b"Wednesday, 21-Nov-74 00:00:00 GMT", NOW, 3_309_984_000),
    (b"Saturday, 21-Nov-76 00:00:00 GMT", NOW, 217_382_400),
    (b"Sunday, 06-Nov-94 08:49:37 GMT", NOW, 784_111_777),
    (b"Sunday, 06-Nov-94 08:49:37 GMT", 5.0, 784_111_777),
    (b"Wednesday, 31-Dec-69 23:58:20 GMT", 5.0, None),
    (b"Friday, 21-Nov-25 00:02:00 GMT", 5.0, None),
    (b"Tuesday, 29-Feb-00 00:00:00 GMT", 2_524_608_000, 951_782_400),
    (b"Sunday, 01-Jan-00 00:00:00 GMT", float("inf"), 199_755_504_000),
    (b"Monday, 01-Jan-03 00:00:00 GMT", 2_619_213_840, 4_197_052_800),
    (b"Sun, 06 Nov 1994 08:49:37 GMT", NOW, 784_111_777),
]


def test_year_of_two_digits_is_at_most_50_years_ahead():
    for value, now, seconds in TWO_DIGIT_YEARS:
        assert parse_http_date(value, now=now) == seconds, (value, now)


FIFTY_YEARS = 50 * 31_556_952  # of 365.2425 days each
IN_2075, IN_1975 = 3_326_572_800, 170_812_800


FIFTY_YEARS_AHEAD = [
    (IN_2075 - FIFTY_YEARS + 1, IN_2075),
    (IN_2075 - FIFTY_YEARS, IN_2075),
    (IN_2075 - FIFTY_YEARS - 0.001, IN_1975),
    (IN_2075 - FIFTY_YEARS - 1, IN_1975),
]


def test_date_exactly_50_years_ahead_is_in_the_future():
    for now, seconds in FIFTY_YEARS_AHEAD:
        assert parse_http_date(b"Saturday, 01-Jun-75 00:00:00 GMT", now=now) == seconds, now


RECEIVED = 784_111_777.25


RETRY_AFTER = [
    ("120", RECEIVED + 120),
    (" 120\t", RECEIVED + 120),
    ("0", RECEIVED),
    ("0120", RECEIVED + 120),
    ("9" * 400, NEVER),
    ("9" * 6_000, NEVER),
    ("9" * 1_000_000, NEVER),
    ("Sun, 06 Nov 1994 08:50:37 GMT", 784_111_837.0),
    (" Sun, 06 Nov 1994 08:50:37 GMT\t", 784_111_837.0),
    ("Sunday, 06-Nov-94 08:50:37 GMT", 784_111_837.0),
    ("Sun Nov  6 08:50:37 1994", 784_111_837.0),
]


def test_seconds_and_dates_are_release_times():
    for value, release in RETRY_AFTER:
        assert retry_after(value, now=RECEIVED) == release, value[:40]


MALFORMED_RETRY_AFTER = [
    "", " ", "-5", "+5", "5.5", "5,", "120, 60", "5;x", "5 s", "1e3", "0x10", "1_0", "12 apples", "soon", "nan",
    "inf", "\u0665", "\uff15", "²", "5\n", "\x0b5", "5\x00", "\u2003 5", "soon\ud800",
    "Sun, 06 Nov 1994 08:50:37", "Sun, 06 Nov 1994 08:50:37 UTC", "sun, 06 nov 1994 08:50:37 gmt",
    "Sun, 32 Nov 1994 08:50:37 GMT", "1994-11-06T08:50:37Z", "Sun, 06 Nov 1994 08:50:37 GMT, 5",
]  # fmt: skip


def test_malformed_value_and_past_date_make_no_hold():
    for value in (*MALFORMED_RETRY_AFTER, "Sun, 06 Nov 1994 08:49:37 GMT", "Thu Jan  1 00:00:00 1970"):
        assert retry_after(value, now=RECEIVED) == ASAP, value
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
    assert retry_after(value, now=RECEIVED) == ASAP or value.strip("\t ").isdigit()


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
