"""Collecting one response, whichever client receives it."""

import gzip
import tracemalloc
import zlib

import pytest

from headgate.advice.fetching import MAX_BODY_BYTES, NETWORK_ERROR, AdviceResponse, ResponseCollector

TYPED = [("Content-Type", "application/trafficadvice+json")]
HALF = b'[{"user_agent":"*","fraction":0.5}]'


def collected(*chunks: bytes, coding: str | None = None) -> AdviceResponse:
    collector = ResponseCollector()
    assert collector.head(200, TYPED if coding is None else [*TYPED, ("Content-Encoding", coding)])
    for chunk in chunks:
        if not collector.add(chunk):
            break
    return collector.whole()


def test_a_body_is_given_as_it_was_sent_in_any_pieces():
    for size in range(1, len(HALF) + 1):
        pieces = [HALF[start : start + size] for start in range(0, len(HALF), size)]
        assert collected(*pieces) == AdviceResponse(200, TYPED, HALF)


def test_a_response_that_breaks_off_has_no_body():
    collector = ResponseCollector()
    assert collector.broken("reset") == NETWORK_ERROR._replace(failure="reset")
    assert not collector.has_head
    collector.head(200, TYPED)
    collector.add(HALF[:10])
    assert collector.has_head
    assert collector.broken("reset") == AdviceResponse(200, TYPED, None, "reset")


def test_what_is_not_wanted_is_not_read():
    assert not ResponseCollector().head(404, TYPED)
    assert not ResponseCollector().head(200, [("Content-Type", "text/html")])
    assert ResponseCollector(lambda status, fields: True).head(404, [])


def test_a_body_of_the_maximum_is_kept_and_one_byte_more_is_not_read_on():
    whole = b" " * MAX_BODY_BYTES
    assert collected(whole).body == whole
    collector = ResponseCollector()
    collector.head(200, TYPED)
    assert collector.add(whole)
    assert not collector.add(b" ")
    response = collector.whole()
    assert (response.body, response.failure) == (None, "the body is longer than 524288 bytes")


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(HALF)),
        (" X-GZIP", gzip.compress(HALF)),
        ("identity", HALF),
        ("", HALF),
        ("sdch", HALF),
        ("gzip", gzip.compress(b" " * (MAX_BODY_BYTES - len(HALF)) + HALF)),
    ],
)
def test_gzip_is_undone_and_other_codings_are_left(coding, body):
    assert collected(body, coding=coding).body.lstrip() == HALF


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (HALF, "header"),
        (gzip.compress(HALF)[:-4], "the gzip coding of the body is incomplete"),
        (gzip.compress(HALF)[:10] + b"\xff" * 30, "invalid"),
        (b"", "the gzip coding of the body is incomplete"),
        (zlib.compress(HALF), "header"),
        (gzip.compress(b" " * (MAX_BODY_BYTES + 1)), "longer than 524288 bytes"),
        (gzip.compress(b" " * (1 << 28), 1)[:100_000], "longer than 524288 bytes"),
    ],
    ids=["plain", "cut", "damaged", "empty", "deflate", "long", "bomb"],
)
def test_a_coding_that_is_damaged_cut_or_a_bomb_leaves_no_body(body, failure):
    response = collected(body, coding="gzip")
    assert (response.status, response.body) == (200, None)
    assert failure in response.failure


def test_a_body_that_decodes_to_very_much_is_not_decoded_to_its_end():
    coded = gzip.compress(bytes(64 * MAX_BODY_BYTES))
    tracemalloc.start()
    try:
        assert collected(coded, coding="gzip").body is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_BODY_BYTES
