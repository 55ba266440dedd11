import click
import pytest

from headgate.cli.bundle.signing import TIMESTAMP

BASE = 1_700_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2023-11-14T22:13:20Z", BASE),
        ("2023-11-14t22:13:20z", BASE),
        ("2023-11-14 22:13:20+00:00", BASE),
        ("2023-11-14T23:13:20.999+01:00", BASE),
        ("1969-12-31T23:59:59Z", -1),
        ("+7d", BASE + 7 * 86_400),
        ("+12h", BASE + 43_200),
        ("+30m", BASE + 1_800),
        ("-1h", BASE - 3_600),
        ("+1w", BASE + 604_800),
        ("+90s", BASE + 90),
    ],
)
def test_a_moment(text, seconds):
    assert TIMESTAMP.convert(text, None, None).after(BASE) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "7d", "+7", "+7y", "+1.5d", "+ 7d", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "tomorrow",
     "2023-11-14T22:13:60Z", "2023-W46-2T22:13:20Z", "+99999999999d", "٢٠٢٣-11-14T22:13:20Z"],
)  # fmt: skip
def test_invalid_times_are_refused_with_an_example(text):
    with pytest.raises(click.BadParameter, match=r"expected 2030-01-31T12:00:00Z, or \+7d"):
        TIMESTAMP.convert(text, None, None)
