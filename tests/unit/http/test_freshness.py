from headgate.http.freshness import MAX_SECONDS, Freshness, delta_seconds, freshness

NOW = 784_111_777.0
DATE, HOUR_LATER = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 09:49:37 GMT"


def lifetime(*fields):
    return freshness(fields, now=NOW).lifetime


CACHE_CONTROL = [
    ("max-age=60", 60),
    ("Max-Age=60", 60),
    ("public, max-age=60, immutable", 60),
    ('max-age="60"', 60),
    (r'max-age="6\0"', 60),
    ("max-age=0060", 60),
    ("s-maxage=900, max-age=60", 900),
    ("max-age=60, s-maxage=900", 900),
    ("s-maxage=0, max-age=60", 0),
    ("max-age=60, max-age=90", 60),
    ("max-age=2147483648", MAX_SECONDS),
    ("max-age=9999999999", MAX_SECONDS),
    ("max-age=" + "9" * 6000, MAX_SECONDS),
    ("max-age=" + "0" * 6000 + "60", 60),
    # 4.2.1: "Caches are encouraged to consider responses that have invalid freshness information […] to be stale."
    ("max-age=sixty", 0),
    ("max-age=-1", 0),
    ("max-age=+60", 0),
    ("max-age=60.5", 0),
    ("max-age=6_0", 0),
    ("max-age=\u0666", 0),
    ("max-age=", 0),
    ("max-age", 0),
    ("max-age='60'", 0),
    ('max-age="60', 0),
    ('max-age="', 0),
    ("s-maxage=900, max-age=x", 0),
    ("s-maxage=x, max-age=60", 0),
    # 4.2.1: "the most restrictive directive should be honored"
    ("no-store, max-age=60", 0),
    ("max-age=60, NO-CACHE", 0),
    ("private, max-age=60", 0),
    ('private="set-cookie", max-age=60', 0),
    ('x="no-store", max-age=60', 60),
    ('x=", max-age=60', None),
    ("public", None),
    ("", None),
    ("maxage=60", None),
    ("x-max-age=60", None),
    (",,,", None),
]


def test_lifetime_by_cache_control():
    for value, seconds in CACHE_CONTROL:
        assert lifetime(("Cache-Control", value)) == seconds, value[:40]


def test_directives_of_all_lines_count():
    assert lifetime(("cache-control", "public"), ("CACHE-CONTROL", "max-age=60")) == 60
    assert lifetime(("cache-control", "max-age=60"), ("cache-control", "max-age=90")) == 60
    assert lifetime(("cache-control", "max-age=60"), ("cache-control", "no-store")) == 0


DATES = [
    ([("Expires", HOUR_LATER), ("Date", DATE)], 3600),
    ([("Expires", HOUR_LATER)], 3600),
    ([("Expires", HOUR_LATER), ("Date", "yesterday")], 3600),
    ([("Expires", HOUR_LATER), ("Date", "Sun, 06 Nov 1994 09:19:37 GMT")], 1800),
    ([("Expires", "Sunday, 06-Nov-94 09:49:37 GMT"), ("Date", "Sun Nov  6 08:49:37 1994")], 3600),
    ([("Expires", "Thursday, 06-Nov-69 08:49:37 GMT")], 0),
    ([("Expires", f" {HOUR_LATER}\t")], 3600),
    ([("Expires", DATE), ("Date", DATE)], 0),
    ([("Expires", DATE), ("Date", HOUR_LATER)], 0),
    ([("Expires", "0")], 0),
    ([("Expires", "-1")], 0),
    ([("Expires", "")], 0),
    ([("Expires", "\u2603")], 0),
    ([("Expires", "Fri, 31 Dec 9999 23:59:59 GMT")], MAX_SECONDS),
    ([("Expires", HOUR_LATER), ("Expires", DATE)], 3600),
    ([("Expires", HOUR_LATER), ("Cache-Control", "max-age=60")], 60),
    ([("Expires", HOUR_LATER), ("Cache-Control", "public")], 3600),
    ([("Expires", HOUR_LATER), ("Cache-Control", "no-store")], 0),
    ([("Expires", HOUR_LATER), ("Cache-Control", "max-age=x")], 0),
    ([("Last-Modified", DATE), ("ETag", '"a"'), ("Date", HOUR_LATER)], None),
    ([], None),
]


def test_lifetime_by_dates():
    for fields, seconds in DATES:
        assert lifetime(*fields) == seconds, fields


AGES = [
    ([("Age", "300")], 300),
    ([("Age", " 300 ")], 300),
    ([("Age", "300, 7")], 300),
    ([("Age", "300"), ("Age", "7")], 300),
    ([("Age", "9" * 6000)], MAX_SECONDS),
    ([("Age", "-1")], 0),
    ([("Age", "x")], 0),
    ([("Age", "")], 0),
    ([("Age", '"300"')], 0),
    ([], 0),
]


def test_first_age_counts():
    for fields, age in AGES:
        assert freshness(fields, now=NOW).age == age, fields


PERMISSIONS = [
    ("max-age=60", True, True),
    ("stale-if-error=60", True, True),
    ("max-age=60, must-revalidate", True, False),
    ("proxy-revalidate", True, False),
    ("s-maxage=60", True, False),  # 5.2.2.10: it says what proxy-revalidate says
    ("no-cache", True, False),
    ("no-store", False, False),
    ("private", False, False),
]


def test_directives_that_forbid_storing_or_stale_use():
    for value, storing, stale in PERMISSIONS:
        found = freshness([("cache-control", value)], now=NOW)
        assert (found.allows_storing, found.allows_stale) == (storing, stale), value


def test_freshness_without_fields():
    assert freshness([], now=NOW) == Freshness(None, 0, allows_storing=True, allows_stale=True)


DELTA_SECONDS = [
    ("0", 0),
    ("000", 0),
    ("10", 10),
    ("", None),
    ("\u00b2", None),
    ("2147483647", 2_147_483_647),
    ("2147483648", 2_147_483_648),
    ("2147483649", 2_147_483_648),
    ("10000000000", 2_147_483_648),
    ("00002147483647", 2_147_483_647),
    ("9" * 5_000, 2_147_483_648),
]


def test_delta_seconds_are_ascii_digits_and_at_most_2_to_the_31():
    # 9111 1.2.2: "the cache MUST consider the value to be 2147483648 (2^31) or the greatest positive integer it can
    # conveniently represent"
    for text, seconds in DELTA_SECONDS:
        assert delta_seconds(text) == seconds, text[:40]
