"""headgate.cli.output."""

import pytest

from headgate.cli.output import format_size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1342, "1.3 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (23_456_789, "23.5 MB"),
        (2**64 + 9, "18.4 EB"),
        (10**24, "1000000.0 EB"),
    ],
)
def test_sizes_have_four_digits_at_most(count, text):
    assert format_size(count) == text
