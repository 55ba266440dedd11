"""headgate.bundle.reading.stream."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle import FormatError, open_bundle, parse_metadata
from headgate.bundle.reading.stream import (
    EndEvent,
    ErrorEvent,
    HeadEvent,
    MetadataEvent,
    PayloadEvent,
    StreamReader,
    aread_stream,
    read_stream,
)
from tests.malformed.parts import MANIFEST, PRIMARY, array, entry, head, index, response, text
from tests.malformed.parts import Bundle as Parts

GOOD = Parts().written()


def told(events):
    """Put what the events say in a list that can be compared, payloads whole."""
    said = []
    for event in events:
        match event:
            case MetadataEvent(metadata):
                said.append(metadata)
            case HeadEvent(keys, found):
                said.append([keys, found.status, found.stored_headers, b""])
            case PayloadEvent(chunk):
                said[-1][3] += chunk
            case EndEvent():
                said.append("end")
            case ErrorEvent(keys, error):
                said.append((keys, error.step))
    return said


def test_headers_say_nosniff_and_stored_headers_are_those_of_the_bundle():
    """3.4 step 9, as `Bundle.response` gives them."""
    (head, *_) = [event.head for event in read_stream([GOOD]) if isinstance(event, HeadEvent)]
    with open_bundle(GOOD) as bundle:
        found = bundle.response(PRIMARY)
    assert (head.headers, head.stored_headers) == (found.headers, found.stored_headers)
    assert head.headers == {**head.stored_headers, "x-content-type-options": "nosniff"}


class TestMetadata:
    def test_it_is_ready_exactly_when_the_bytes_before_the_first_response_are_there(self):
        ready = Parts().at("responses")
        reader = StreamReader()
        for at in range(ready - 1):
            assert reader.feed(GOOD[at : at + 1]) == []
        (event,) = reader.feed(GOOD[ready - 1 : ready])
        assert event == MetadataEvent(parse_metadata(GOOD))

    def test_a_stream_cut_behind_the_index_still_gives_it(self):
        events = told(read_stream([GOOD[: Parts().at("responses")]]))
        assert events[0] == parse_metadata(GOOD)
        assert [keys[0][0] for keys, _ in events[1:]] == [PRIMARY, MANIFEST]

    def test_a_stream_cut_before_is_refused(self):
        reader = StreamReader()
        assert reader.feed(GOOD[:60]) == []
        with pytest.raises(FormatError) as caught:
            reader.close()
        assert caught.value.fallback_url == PRIMARY

    def test_what_is_no_bundle_is_refused_as_soon_as_it_is_seen(self):
        reader = StreamReader()
        with pytest.raises(FormatError):
            reader.feed(b"<!doctype html>")
        assert reader.feed(b"more") == reader.close() == []

    def test_more_metadata_than_we_would_hold_is_refused_before_it_comes(self):
        claimed = 10_000_000
        lengths = array(text("index"), head(0, claimed), text("responses"), head(0, 1))
        start = Parts(lengths=lengths, sections_head=b"\x82").written()[: 60 + len(lengths)]
        reader = StreamReader(max_metadata=1_000_000)
        with pytest.raises(FormatError, match="longer than the 1000000 bytes"):
            reader.feed(start)

    def test_an_unknown_section_is_not_held(self):
        parts = Parts().arranged(("junk", b"\x5a\x00\x0f\x42\x40" + bytes(1_000_000)), *Parts().sections.items())
        reader = StreamReader(max_metadata=100_000)
        content = parts.written()
        events = []
        for at in range(0, len(content), 10_000):
            events += reader.feed(content[at : at + 10_000])
            assert len(reader._buffer) <= 20_000
        assert told(events)[1][1] == 200


class TestResponses:
    @given(st.lists(st.integers(0, len(GOOD)), max_size=12))
    def test_any_split_gives_the_same(self, cuts):
        edges = [0, *sorted(cuts), len(GOOD)]
        pieces = [GOOD[start:end] for start, end in pairwise(edges)]
        assert told(read_stream(pieces)) == told(read_stream([GOOD]))

    def test_it_gives_what_a_reader_gives(self):
        said = told(read_stream(GOOD[at : at + 1] for at in range(len(GOOD))))
        bundle = open_bundle(GOOD)
        assert said[1] == [((PRIMARY, None),), 200, bundle.response(PRIMARY).stored_headers, b"hello"]
        assert said[3] == [((MANIFEST, None),), 200, bundle.response(MANIFEST).stored_headers, b"{}"]
        assert said[2] == said[4] == "end"

    def test_a_payload_comes_as_it_arrives(self):
        reader = StreamReader()
        large = Parts().answering(response(payload=b"x" * 100_000)).written()
        events = reader.feed(large[:600])
        assert isinstance(events[-1], PayloadEvent)
        assert [type(event) for event in reader.feed(b"xx")] == [PayloadEvent]
        assert len(reader._buffer) == 0

    def test_a_refused_response_hides_no_other(self):
        bad = Parts().answering(b"\x83" + b"junk" * 5, None, response())
        said = told(read_stream([bad.written()]))
        assert said[1][1] == 200
        assert said[3] == (((PRIMARY, None),), "3.4 step 2")

    def test_a_shared_location_comes_once_with_all_its_keys(self):
        shared = Parts().having(
            index=index({PRIMARY: entry((1, len(response()))), MANIFEST: entry((1, len(response())))}),
            responses=array(response()),
        )
        said = told(read_stream([shared.written()]))
        assert said[1][0] == ((PRIMARY, None), (MANIFEST, None))
        assert len(said) == 3

    def test_a_response_inside_another_is_refused(self):
        inner = response()
        outer = response(payload=inner)
        at = 1 + len(outer) - len(inner)
        overlapping = Parts().having(
            index=index({PRIMARY: entry((1, len(outer))), MANIFEST: entry((at, len(inner)))}), responses=array(outer)
        )
        said = told(read_stream([overlapping.written()]))
        assert said[1][1] == 200
        assert said[3] == (((MANIFEST, None),), "3.4 step 1")
        # At random it can be read, and is.
        assert bytes(open_bundle(overlapping.written()).response(MANIFEST).payload) == b"hello"

    def test_a_payload_that_is_cut_is_refused_after_its_head(self):
        cut = GOOD[: Parts().at("trailer") - 1]
        assert told(read_stream([cut]))[-1] == (((MANIFEST, None),), "3.4 step 12")


class TestAsyncio:
    def test_it_gives_the_same(self):
        async def pieces():
            for at in range(0, len(GOOD), 9):
                await asyncio.sleep(0)
                yield GOOD[at : at + 9]

        async def collected():
            return [event async for event in aread_stream(pieces())]

        assert told(asyncio.run(collected())) == told(read_stream([GOOD]))

    def test_behind_an_integrity_block(self, request):
        signed = (request.path.parents[3] / "vectors" / "bundle" / "small_b2_signed.swbn").read_bytes()
        bare = (request.path.parents[3] / "vectors" / "bundle" / "small_b2.wbn").read_bytes()
        assert told(read_stream([signed], profile="compat")) == told(read_stream([bare], profile="compat"))
