"""headgate.cli.output."""

import pytest

from headgate.cli.output import format_size, print_in_batches


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


def test_a_batch_is_written_when_it_has_the_size():
    shown = []
    print_in_batches(iter(["a\n", "b\n", "c" * 10 + "\n", "d\n"]), shown.append, size=4)
    assert shown == ["a\nb\n", "c" * 10 + "\n", "d\n"]
    shown.clear()
    print_in_batches(iter(["a\n", "b\n"]), shown.append, size=0)
    assert shown == ["a\n", "b\n"]
    print_in_batches(iter(()), shown.append)
    assert len(shown) == 2


def test_lines_before_an_exception_are_written():
    def failing():
        yield "a\n"
        raise ZeroDivisionError

    shown = []
    with pytest.raises(ZeroDivisionError):
        print_in_batches(failing(), shown.append)
    assert shown == ["a\n"]
