"""What is kept of a response, so that the next request can be conditional (RFC 9111, sections 3 and 4.3)."""

import pytest

from headgate.advice import MEDIA_TYPE
from headgate.advice.decision import Advice
from headgate.advice.fetching import AdviceResponse
from headgate.advice.freshness import MAX_STALENESS, StoredAdvice
from headgate.advice.parser import AdviceEntry

NOW = 784_111_777.0
DATE, LATER = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 09:49:37 GMT"
ADVICE = Advice("https://example.com", AdviceEntry(fraction=0.5), "", NOW + 1800)


def stored(*fields: tuple[str, str], status: int = 200, body: bytes | None = b"[]") -> StoredAdvice | None:
    response = AdviceResponse(status, [("Content-Type", MEDIA_TYPE), *fields], body)
    return StoredAdvice.of(ADVICE, response, now=NOW)


@pytest.mark.parametrize(
    ("fields", "validators"),
    [
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
    ],
)
def test_sound_validators_are_sent_back(fields: list[tuple[str, str]], validators: tuple[tuple[str, str], ...]) -> None:
    kept = stored(*fields)
    assert kept is not None
    assert kept.validators == validators


@pytest.mark.parametrize(
    ("status", "body"), [(200, None), (404, b"[]"), (204, b""), (500, None), (503, b""), (0, None), (301, b"")]
)
def test_only_what_a_whole_body_said_is_kept(status: int, body: bytes | None) -> None:
    assert stored(("ETag", '"a"'), status=status, body=body) is None


def test_no_stranger_fills_memory() -> None:
    assert stored(("ETag", '"a"'), ("Cache-Control", "x," * 600)) is None
    kept = stored(("ETag", '"a"'), ("X-Other", "x" * 100_000))
    assert kept is not None
    assert kept.fields == [("etag", '"a"')]
    renewed = kept.renewed([("Cache-Control", "max-age=7200, " + "x," * 600)], now=NOW)
    assert renewed.advice.fresh_until == NOW + 7200
    assert renewed.fields == [("etag", '"a"')]


def test_another_media_type_is_not_kept() -> None:
    response = AdviceResponse(200, [("Content-Type", "text/html"), ("ETag", '"a"')], b"[]")
    assert StoredAdvice.of(ADVICE, response, now=NOW) is None


@pytest.mark.parametrize("directive", ["no-store", "private"])
def test_what_may_not_be_stored_is_not_kept(directive: str) -> None:
    assert stored(("ETag", '"a"'), ("Cache-Control", directive)) is None


@pytest.mark.parametrize("directive", ["must-revalidate", "proxy-revalidate", "s-maxage=60", "no-cache"])
def test_what_may_not_be_used_stale_is_kept_but_does_not_stand(directive: str) -> None:
    kept = stored(("ETag", '"a"'), ("Cache-Control", directive))
    assert kept is not None
    assert kept.last_known is None
    without = stored(("ETag", '"a"'))
    assert without is not None
    assert without.last_known == AdviceEntry(fraction=0.5)


def test_fields_of_a_304_replace_those_of_their_names_and_leave_the_others() -> None:
    kept = stored(("ETag", '"a"'), ("Cache-Control", "max-age=3600"), ("Last-Modified", DATE), ("Age", "3000"))
    assert kept is not None
    same = kept.renewed([], now=NOW + 1800)
    assert same.advice.fresh_until == NOW + 1800 + 3600  # the age was the first response's alone
    assert same.advice.result == ADVICE.result
    assert same.validators == kept.validators
    assert same.kept_until == same.advice.fresh_until + MAX_STALENESS
    other = kept.renewed([("cache-control", "max-age=7200"), ("ETAG", '"b"'), ("Age", "200")], now=NOW + 1800)
    assert other.advice.fresh_until == NOW + 1800 + 7000
    assert other.validators == (("If-None-Match", '"b"'), ("If-Modified-Since", DATE))


def test_dates_of_a_304_count_against_the_expiry_that_was_stored() -> None:
    kept = stored(("Expires", LATER), ("Date", DATE))
    assert kept is not None
    assert kept.renewed([], now=NOW + 1800).advice.fresh_until == NOW + 1800 + 3600
    assert kept.renewed([("Date", LATER)], now=NOW + 3600).advice.fresh_until == NOW + 3600 + 600
