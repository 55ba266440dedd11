from headgate.advice import MEDIA_TYPE
from headgate.advice.decision import Advice
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.advice.freshness import (
    DEFAULT_FRESHNESS,
    MAX_FRESHNESS,
    MAX_STALENESS,
    MIN_FRESHNESS,
    UNREACHABLE_FOR,
    StoredAdvice,
    fresh_for,
    retry_release,
)
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.release import ASAP
from tests.quotes import quotes

NOW = 784_111_777.0
DATE, PAST, FUTURE = (f"Sun, 06 Nov 1994 {time} GMT" for time in ("08:49:37", "08:49:36", "09:49:37"))

LIFETIMES = [
    ([], DEFAULT_FRESHNESS),
    ([("ETag", '"a"'), ("Last-Modified", PAST)], DEFAULT_FRESHNESS),
    ([("Age", "1700")], DEFAULT_FRESHNESS),
    ([("Cache-Control", "max-age=3600")], 3600),
    ([("Cache-Control", 'max-age="3600"')], 3600),
    ([("Cache-Control", "max-age=600")], MIN_FRESHNESS),
    ([("Cache-Control", "max-age=599")], MIN_FRESHNESS),
    ([("Cache-Control", "max-age=0")], MIN_FRESHNESS),
    ([("Cache-Control", "max-age=63072000")], MAX_FRESHNESS),
    ([("Cache-Control", "max-age=" + "9" * 6000)], MAX_FRESHNESS),
    ([("Cache-Control", "no-store")], MIN_FRESHNESS),
    ([("Cache-Control", "no-cache, max-age=3600")], MIN_FRESHNESS),
    ([("Cache-Control", "private, max-age=3600")], MIN_FRESHNESS),
    ([("Cache-Control", "max-age=x")], MIN_FRESHNESS),
    ([("Cache-Control", "s-maxage=900, max-age=60")], 900),
    ([("Cache-Control", "max-age=900"), ("Age", "200")], 700),
    ([("Cache-Control", "max-age=900"), ("Age", "300")], MIN_FRESHNESS),
    ([("Cache-Control", "max-age=900"), ("Age", "100000")], MIN_FRESHNESS),
    # The lifetime is reduced to 48 hours before the age is subtracted.
    ([("Cache-Control", "max-age=63072000"), ("Age", "100")], MAX_FRESHNESS - 100),
    ([("Expires", FUTURE), ("Date", DATE)], 3600),
    ([("Expires", PAST), ("Date", DATE)], MIN_FRESHNESS),
    ([("Expires", "0")], MIN_FRESHNESS),
]


@quotes(
    "traffic-advice 8.2",
    "To mitigate this, well-behaved agents implement a maximum freshness lifetime when they fetch traffic advice.",
)
@quotes(
    "traffic-advice 5",
    "Notwithstanding the usual behavior of [HTTP-CACHING], agents (especially ones shared amongst "
    "multiple users) should consider applying a minimum freshness lifetime (10 minutes is suggested) and "
    "maximum freshness lifetime (48 hours is suggested) in order to balance the security considerations "
    "discussed below.",
    "If these suggested values are used, a default freshness lifetime (if none is specified) of 30 "
    "minutes may be appropriate.",
)
@quotes(
    "traffic-advice 8.3",
    "To mitigate this, well-behaved agents implement, in addition to other anti-abuse measures, a minimum"
    " freshness lifetime when they fetch traffic advice.",
)
def test_freshness_of_advice_is_the_lifetime_within_bounds():
    for fields, seconds in LIFETIMES:
        for result in (AdviceEntry(), None):
            assert fresh_for(AdviceResponse(200, fields, b""), result, now=NOW) == seconds, fields


def test_freshness_of_unreachable_is_its_retry_after_within_bounds():
    for fields, seconds in (
        ([], UNREACHABLE_FOR),
        ([("Retry-After", "120")], 120),
        ([("Retry-After", "0")], 1),
        ([("Retry-After", "172801")], MAX_FRESHNESS),
        ([("Retry-After", "9" * 6000)], MAX_FRESHNESS),
        ([("retry-after", FUTURE)], 3600),
        ([("Retry-After", PAST)], UNREACHABLE_FOR),
        ([("Retry-After", "soon")], UNREACHABLE_FOR),
        ([("Retry-After", "120"), ("Retry-After", "240"), ("Retry-After", "soon")], 240),
        ([("Cache-Control", "max-age=3600")], UNREACHABLE_FOR),
    ):
        assert fresh_for(AdviceResponse(503, fields, None), UNREACHABLE, now=NOW) == seconds, fields


def test_unreachable_without_retry_after_is_fresh_for_the_given_seconds():
    assert fresh_for(NETWORK_ERROR, UNREACHABLE, now=NOW) == 60
    assert fresh_for(NETWORK_ERROR, UNREACHABLE, now=NOW, unreachable_for=5.0) == 5
    assert retry_release(NETWORK_ERROR.fields, now=NOW) == ASAP


ADVICE = Advice("https://example.com", AdviceEntry(fraction=0.5), "", NOW + 1800)


def store(*fields, status=200, body=b"[]", media_type=MEDIA_TYPE):
    return StoredAdvice.of(ADVICE, AdviceResponse(status, [("Content-Type", media_type), *fields], body), now=NOW)


VALIDATORS = [
    ([], ()),
    ([("ETag", '"a"')], (("If-None-Match", '"a"'),)),
    ([("etag", 'W/"a,b"')], (("If-None-Match", 'W/"a,b"'),)),
    ([("Last-Modified", DATE)], (("If-Modified-Since", DATE),)),
    ([("Last-Modified", DATE), ("ETag", '""')], (("If-None-Match", '""'), ("If-Modified-Since", DATE))),
    ([("ETag", '"a"'), ("ETag", '"b"')], (("If-None-Match", '"a"'),)),
    ([("ETag", "a")], ()),
    ([("ETag", '"a')], ()),
    ([("ETag", '"a", "b"')], ()),
    ([("ETag", '"a"\r\nCookie: b')], ()),
    ([("ETag", "*")], ()),
    ([("ETag", f'"{"a" * 254}"')], (("If-None-Match", f'"{"a" * 254}"'),)),
    ([("ETag", f'"{"a" * 255}"')], ()),
    ([("Last-Modified", "yesterday")], ()),
    ([("Last-Modified", f"{DATE}\r\nCookie: b")], ()),
]


def test_only_valid_validators_are_sent():
    for fields, validators in VALIDATORS:
        assert store(*fields).validators == validators, fields


def test_stored_fields_are_bounded():
    assert store(("ETag", '"a"'), ("Cache-Control", "x," * 600)) is None
    stored = store(("ETag", '"a"'), ("X-Other", "x" * 100_000))
    assert stored.fields == [("etag", '"a"')]
    renewed = stored.renewed([("Cache-Control", "max-age=7200, " + "x," * 600)], now=NOW)
    assert renewed.advice.fresh_until == NOW + 7200
    assert renewed.fields == [("etag", '"a"')]


def test_directives_forbid_storing_or_stale_use():
    for directive in ("no-store", "private"):
        assert store(("ETag", '"a"'), ("Cache-Control", directive)) is None, directive
    for directive in ("must-revalidate", "proxy-revalidate", "s-maxage=60", "no-cache"):
        assert store(("ETag", '"a"'), ("Cache-Control", directive)).last_known is None, directive
    assert store(("ETag", '"a"')).last_known == AdviceEntry(fraction=0.5)


def test_fields_of_a_304_replace_those_with_their_names():
    stored = store(("ETag", '"a"'), ("Cache-Control", "max-age=3600"), ("Last-Modified", DATE), ("Age", "3000"))
    same = stored.renewed([], now=NOW + 1800)
    assert same.advice.fresh_until == NOW + 1800 + 3600  # the age belongs to the first response only
    assert same.advice.result == ADVICE.result
    assert same.validators == stored.validators
    assert same.kept_until == same.advice.fresh_until + MAX_STALENESS
    other = stored.renewed([("cache-control", "max-age=7200"), ("ETAG", '"b"'), ("Age", "200")], now=NOW + 1800)
    assert other.advice.fresh_until == NOW + 1800 + 7000
    assert other.validators == (("If-None-Match", '"b"'), ("If-Modified-Since", DATE))


def test_date_of_a_304_is_compared_with_the_stored_expiry():
    stored = store(("Expires", FUTURE), ("Date", DATE))
    assert stored.renewed([], now=NOW + 1800).advice.fresh_until == NOW + 1800 + 3600
    assert stored.renewed([("Date", FUTURE)], now=NOW + 3600).advice.fresh_until == NOW + 3600 + 600
