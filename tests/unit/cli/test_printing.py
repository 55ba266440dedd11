"""headgate.cli.printing."""

import io
import sys

import pytest

from headgate.cli.printing import print_json, size_of


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
def test_sizes_are_readable(count, text):
    assert size_of(count) == text


class Narrow(io.RawIOBase):
    """Takes a few bytes at a time, as a system may that is not asked through a buffer."""

    def __init__(self):
        self.taken = b""

    def writable(self):
        return True

    def write(self, content):
        piece = bytes(content[:3])
        self.taken += piece
        return len(piece)


def test_nothing_is_left_out_where_output_has_no_buffer(monkeypatch):
    narrow = Narrow()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(narrow, write_through=True))
    print_json({"name": "bücher"})
    assert narrow.taken == '{"name":"bücher"}\n'.encode()
