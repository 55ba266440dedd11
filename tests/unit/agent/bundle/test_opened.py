import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agent.bundle.answering import skipping
from headgate.agent.bundle.opened import CHUNK, HeadReading, in_chunks
from headgate.bundle.api import open_bundle
from headgate.errors import ResponseError
from tests.e2e.bundle_site import SITE, make_bundle

CONTENT = make_bundle(large=bytes(range(256)) * 3)
BASE = 1000


@pytest.fixture(scope="module")
def bundle():
    with open_bundle(CONTENT) as opened:
        yield opened


def reading(bundle, name):
    location = bundle.metadata.requests[f"{SITE}/{name}"]
    source = CONTENT[location.offset : location.offset + location.length]
    return HeadReading(location, base=BASE, profile="strict", fallback_url=f"{SITE}/"), source


def read(arriving, source):
    arriving.feed(source)
    return arriving.finish(len(source))


@pytest.mark.parametrize("name", ["", "moved", "coded", "large", "last"])
@pytest.mark.parametrize("size", [1, 2, 9, 100, 10_000])
def test_a_head_is_read_as_it_arrives(bundle, name, size):
    stored = bundle.response(f"{SITE}/{name}")
    arriving, source = reading(bundle, name)
    pieces = iter([source[start : start + size] for start in range(0, len(source), size)])
    for piece in pieces:
        if arriving.feed(piece):
            break
    head = arriving.finish(len(source))
    assert (head.status, head.stored_headers) == (stored.status, stored.stored_headers)
    assert arriving.rest() + b"".join(pieces) == stored.payload


@given(length=st.integers(0, 900), name=st.sampled_from(["", "moved", "large", "broken"]))
def test_a_response_that_is_cut_is_refused_and_placed_in_the_resource(length, name):
    with open_bundle(CONTENT) as bundle:
        arriving, source = reading(bundle, name)
        cut = source[:length]
        if length >= len(source) and name != "broken":
            read(arriving, cut)
            return
        with pytest.raises(ResponseError) as refused:
            read(arriving, cut)
        location = bundle.metadata.requests[f"{SITE}/{name}"]
        assert BASE + location.offset <= refused.value.offset <= BASE + location.offset + location.length
        assert refused.value.fallback_url == f"{SITE}/"


def test_the_head_is_there_before_the_payload():
    with open_bundle(make_bundle()) as bundle:
        location = bundle.metadata.requests[f"{SITE}/large"]
        source = bundle.raw[location.offset : location.offset + location.length]
        arriving = HeadReading(location, base=BASE, profile="strict", fallback_url=None)
        assert not arriving.feed(bytes(source[:5]))
        assert arriving.feed(bytes(source[5:65536]))
        assert arriving.finish(len(source)).payload.length == 1 << 19


@given(st.binary(max_size=200), st.integers(0, 220), st.integers(0, 220), st.lists(st.integers(0, 60), max_size=6))
def test_whatever_the_chunks_the_same_part_is_cut_out(content, start, stop, cuts):
    cut, position, pieces = skipping(start, stop), 0, []
    for size in [*cuts, len(content)]:
        pieces.append(cut(content[position : position + size]))
        position += size
    assert b"".join(pieces) == content[start:stop]


def test_a_payload_is_copied_a_chunk_at_a_time():
    payload = bytes(range(256)) * 1000
    chunks = list(in_chunks(memoryview(payload)))
    assert b"".join(chunks) == payload
    assert max(map(len, chunks)) == CHUNK
    assert list(in_chunks(memoryview(b""))) == []
