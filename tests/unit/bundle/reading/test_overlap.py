"""What a small bundle may make those do who take all of it."""

from dataclasses import replace

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.reading.overlap import reject_overlapping_responses
from headgate.errors import HeadgateError
from tests.malformed import parts


def test_a_bundle_whose_responses_lie_apart_is_taken_whole() -> None:
    with open_bundle(parts.Bundle().written()) as bundle:
        reject_overlapping_responses(bundle)


def test_responses_inside_one_another_are_longer_than_their_bundle() -> None:
    with (
        open_bundle(parts.nested(3).written()) as bundle,
        pytest.raises(HeadgateError, match=r"3\d\d\d bytes in"),
    ):
        reject_overlapping_responses(bundle)


def test_a_response_that_keys_share_is_one() -> None:
    entries = {f"{parts.PRIMARY}{number}": parts.entry(parts.LOCATIONS[0]) for number in range(100)}
    entries[parts.MANIFEST] = parts.entry(parts.LOCATIONS[1])
    with open_bundle(parts.Bundle().having(index=parts.index(entries)).written()) as bundle:
        reject_overlapping_responses(bundle)


def test_what_was_cut_off_counts_for_nothing() -> None:
    long = parts.response(payload=bytes(100_000))
    whole = parts.Bundle().answering(long).written()
    for end in (len(whole), len(whole) - 10, len(whole) - 100_000):
        with open_bundle(whole[:end]) as bundle:
            reject_overlapping_responses(bundle)


def test_a_claim_beyond_the_end_hides_nothing() -> None:
    made = parts.nested(50)
    claimed = {name: len(content) for name, content in made.sections.items()} | {"responses": 2**40}
    lengths = parts.array(*(item for name, size in claimed.items() for item in (parts.text(name), parts.uint(size))))
    with open_bundle(replace(made, lengths=lengths).written()) as bundle:
        assert bundle.metadata.length > 2**40
        with pytest.raises(HeadgateError, match="the responses overlap"):
            reject_overlapping_responses(bundle)
