"""headgate.bundle.stream."""

import asyncio

import pytest

from headgate.bundle import FormatError
from headgate.bundle.stream import (
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


def summary(events):
    """Return a list of the events that can be compared, with whole payloads."""
    found = []
    for event in events:
        match event:
            case MetadataEvent(metadata):
                found.append(metadata)
            case HeadEvent(keys, head):
                found.append([keys, head.status, head.stored_headers, b""])
            case PayloadEvent(chunk):
                found[-1][3] += chunk
            case EndEvent():
                found.append("end")
            case ErrorEvent(keys, error):
                found.append((keys, error.step))
    return found


@pytest.mark.parametrize(
    ("content", "kinds"),
    [
        (GOOD, [MetadataEvent, HeadEvent, PayloadEvent, EndEvent, HeadEvent, PayloadEvent, EndEvent]),
        (
            Parts().answering(b"\x83" + b"junk" * 5, None, response()).written(),
            [MetadataEvent, HeadEvent, PayloadEvent, EndEvent, ErrorEvent],
        ),
        (
            GOOD[: Parts().at("trailer") - 1],
            [MetadataEvent, HeadEvent, PayloadEvent, EndEvent, HeadEvent, PayloadEvent, ErrorEvent],
        ),
    ],
    ids=["whole", "malformed response", "cut in a payload"],
)
def test_events_come_in_the_order_of_the_file(content, kinds):
    reader = StreamReader()
    assert [type(event) for event in reader.feed(content) + reader.close()] == kinds
    assert reader.feed(b"more") == reader.close() == []


class TestMetadata:
    def test_other_content_is_refused_by_its_first_bytes(self):
        reader = StreamReader()
        with pytest.raises(FormatError):
            reader.feed(b"<!doctype html>")
        assert reader.feed(b"more") == reader.close() == []

    def test_section_over_the_limit_is_refused_before_it_arrives(self):
        claimed = 10_000_000
        lengths = array(text("index"), head(0, claimed), text("responses"), head(0, 1))
        start = Parts(lengths=lengths, sections_head=b"\x82").written()[: 60 + len(lengths)]
        reader = StreamReader(max_section=1_000_000)
        with pytest.raises(FormatError, match="exceeds the limit of 1000000"):
            reader.feed(start)

    def test_unknown_section_is_not_held(self):
        parts = Parts().arranged(("junk", b"\x5a\x00\x0f\x42\x40" + bytes(1_000_000)), *Parts().sections.items())
        reader = StreamReader(max_section=100_000)
        content = parts.written()
        events = []
        for at in range(0, len(content), 10_000):
            events += reader.feed(content[at : at + 10_000])
            assert len(reader._buffer) <= 20_000
        assert summary(events)[1][1] == 200


class TestResponses:
    def test_payload_events_come_as_bytes_arrive(self):
        reader = StreamReader()
        large = Parts().answering(response(payload=b"x" * 100_000)).written()
        events = reader.feed(large[:600])
        assert isinstance(events[-1], PayloadEvent)
        assert [type(event) for event in reader.feed(b"xx")] == [PayloadEvent]
        assert len(reader._buffer) == 0

    def test_shared_location_comes_once_with_all_keys(self):
        shared = Parts().having(
            index=index({PRIMARY: entry((1, len(response()))), MANIFEST: entry((1, len(response())))}),
            responses=array(response()),
        )
        found = summary(read_stream([shared.written()]))
        assert found[1][0] == ((PRIMARY, None), (MANIFEST, None))
        assert len(found) == 3


class TestAsyncio:
    def test_asynchronous_pieces_give_the_same_events(self):
        async def pieces():
            for at in range(0, len(GOOD), 9):
                await asyncio.sleep(0)
                yield GOOD[at : at + 9]

        async def collected():
            return [event async for event in aread_stream(pieces())]

        assert summary(asyncio.run(collected())) == summary(read_stream([GOOD]))

    def test_integrity_block_is_skipped(self, request):
        signed = (request.path.parents[2] / "vectors" / "bundle" / "small_b2_signed.swbn").read_bytes()
        bare = (request.path.parents[2] / "vectors" / "bundle" / "small_b2.wbn").read_bytes()
        assert summary(read_stream([signed], profile="compat")) == summary(read_stream([bare], profile="compat"))
