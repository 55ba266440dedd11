import math

import pytest

from headgate.http import whole_seconds


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
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
    ],
)
def test_seconds_round_up_except_for_a_rounding_error(seconds: float, expected: int) -> None:
    assert whole_seconds(seconds) == expected
