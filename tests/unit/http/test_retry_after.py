"""Retry-After (RFC 9110, section 10.2.3) as a release time."""

import pytest

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
        ("9" * 6000, NEVER),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 784_111_837.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 784_111_837.0),
        ("Sun Nov  6 08:50:37 1994", 784_111_837.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", ASAP),
        ("Sun, 06 Nov 1994 08:50:37 UTC", ASAP),
        ("", ASAP),
        ("5.5", ASAP),
        ("+5", ASAP),
        ("-5", ASAP),
        ("1_0", ASAP),
        ("0x10", ASAP),
        ("\u0665", ASAP),
        ("5 s", ASAP),
        ("120, 60", ASAP),
        ("soon", ASAP),
        ("inf", ASAP),
        ("nan", ASAP),
    ],
)
def test_a_value_is_a_release_time_or_nothing(value: str, release: float) -> None:
    assert retry_after(value, now=NOW) == release
