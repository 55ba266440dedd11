"""Content codings, undone within a bound and a time. Those of real responses are in test_fetching."""

import gzip
import sys
import zlib

import pytest

from headgate.agent.advice.content import MOST_CODINGS, content
from headgate.agent.advice.deadline import Deadline
from headgate.agent.advice.response import Broken

MOST = 1000
TEXT = b"some text " * 50


def undone(body: bytes, *lines: str, deadline: Deadline | None = None) -> bytes:
    fields = [("Content-Encoding", line) for line in lines]
    return content(body, fields, most=MOST, deadline=deadline or Deadline(60))


@pytest.mark.parametrize("lines", [(), ("identity",), ("",), ("sdch",), ("aes128gcm, identity",)])
def test_what_is_not_coded_and_what_is_unknown_is_left(lines):
    assert undone(TEXT, *lines) == TEXT


def test_codings_are_undone_from_the_last_to_the_first_over_all_lines():
    assert undone(gzip.compress(zlib.compress(TEXT)), "Deflate,", "GZIP") == TEXT
    assert undone(zlib.compress(gzip.compress(TEXT)), "x-gzip", "deflate") == TEXT


def test_a_body_may_be_as_long_as_the_bound_and_no_longer():
    assert undone(gzip.compress(b"x" * MOST), "gzip") == b"x" * MOST
    with pytest.raises(Broken, match="longer than 1000 bytes"):
        undone(gzip.compress(b"x" * (MOST + 1)), "gzip")
    with pytest.raises(Broken, match="longer than 1000 bytes"):
        undone(gzip.compress(gzip.compress(b"x" * (1 << 24))), "gzip", "gzip")


@pytest.mark.parametrize("body", [TEXT, b"", gzip.compress(TEXT)[:-1], gzip.compress(TEXT)[:-8] + b"12345678"])
def test_what_is_not_in_its_coding_or_not_all_of_it_is_broken(body):
    with pytest.raises(Broken, match="gzip"):
        undone(body, "gzip")


def test_only_so_many_codings_are_undone():
    body = TEXT
    for _ in range(MOST_CODINGS):
        body = gzip.compress(body)
    assert undone(body, ", ".join(["gzip"] * MOST_CODINGS)) == TEXT
    with pytest.raises(Broken, match="codings"):
        undone(gzip.compress(body), ", ".join(["gzip"] * (MOST_CODINGS + 1)))


def test_a_coding_that_is_not_installed_is_left(monkeypatch):
    monkeypatch.setitem(sys.modules, "brotli", None)
    assert undone(TEXT, "br") == TEXT


def test_work_without_an_end_ends_with_the_time():
    with pytest.raises(TimeoutError):
        undone(gzip.compress(b"") * 40, "gzip", deadline=Deadline(0))
