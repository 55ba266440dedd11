"""How long a result stays fresh, at least and at most."""

import pytest

from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.advice.freshness import (
    DEFAULT_FRESHNESS,
    MAX_FRESHNESS,
    MIN_FRESHNESS,
    UNREACHABLE_FOR,
    fresh_for,
    retry_release,
)
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.release import ASAP

NOW = 784_111_777.0
DATE, PAST, FUTURE = (f"Sun, 06 Nov 1994 {time} GMT" for time in ("08:49:37", "08:49:36", "09:49:37"))


@pytest.mark.parametrize("result", [AdviceEntry(), None])
@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
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
        # It is cut to 48 hours before the age is taken off.
        ([("Cache-Control", "max-age=63072000"), ("Age", "100")], MAX_FRESHNESS - 100),
        ([("Expires", FUTURE), ("Date", DATE)], 3600),
        ([("Expires", PAST), ("Date", DATE)], MIN_FRESHNESS),
        ([("Expires", "0")], MIN_FRESHNESS),
    ],
)
def test_a_result_is_fresh_for_what_its_fields_say_within_bounds(
    result: AdviceEntry | None, fields: list[tuple[str, str]], seconds: float
) -> None:
    assert fresh_for(AdviceResponse(200, fields, b""), result, now=NOW) == seconds


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
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
    ],
)
def test_unreachable_is_fresh_for_its_retry_after(fields: list[tuple[str, str]], seconds: float) -> None:
    assert fresh_for(AdviceResponse(503, fields, None), UNREACHABLE, now=NOW) == seconds


def test_unreachable_without_a_retry_after_is_fresh_for_what_the_agent_says() -> None:
    assert fresh_for(NETWORK_ERROR, UNREACHABLE, now=NOW) == 60
    assert fresh_for(NETWORK_ERROR, UNREACHABLE, now=NOW, unreachable_for=5.0) == 5
    assert retry_release(NETWORK_ERROR.fields, now=NOW) == ASAP
