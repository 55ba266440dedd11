from headgate.http.date import parse_http_date

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
