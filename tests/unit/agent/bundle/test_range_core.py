import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agent.bundle.range_core import MIN_RANGE, OpenOptions, RangeCore, RemoteBytes, payload_pieces
from headgate.agent.bundle.range_protocol import RangeRequest, Resource
from headgate.agent.bundle.session import NEXT_CHUNK, NextChunk, Send
from headgate.bundle import open_bundle
from headgate.bundle.format.incremental import ReadRequest, drive, reads_from
from headgate.bundle.model import Location
from headgate.errors import FetchError, FormatError, ResponseError
from tests.bundle_site import SITE, make_bundle

SERVED = {"content-type": "application/webbundle", "x-content-type-options": "nosniff"}


def remote(most=1 << 30):
    def fetch(request):
        return (yield request)

    return RemoteBytes(Resource("https://a.example/"), fetch, max_metadata=most)


def serve(bytes_there, program, content):
    """Run work against the content of a server; return its result and the requests."""
    requests = []
    try:
        request = next(program)
        while True:
            requests.append(request)
            start = max(0, len(content) - request.length) if request.offset is None else request.offset
            part = content[start : start + request.length]
            fields = {**SERVED, "content-range": f"bytes {start}-{start + len(part) - 1}/{len(content)}"}
            if not content:
                fields["content-range"] = "bytes */0"
            status = 206 if content else 416
            judged = bytes_there._resource.judge(request, status, fields, url="https://a.example/")
            assert judged == len(part)
            request = program.send(part)
    except StopIteration as done:
        return done.value, requests


def reader(*needs):
    """Return a parser that reads these bytes, and returns them."""
    taken = []
    for need in needs:
        taken.append(bytes((yield ReadRequest(*need))))  # noqa: PERF401 - a comprehension cannot yield
    return taken


def test_small_reads_share_one_request():
    there = remote()
    content = bytes(range(256)) * 300
    taken, requests = serve(there, there.parse(reader((0, 10), (10, 5), (15, 1000))), content)
    assert taken == [content[:10], content[10:15], content[15:1015]]
    assert requests == [RangeRequest(0, MIN_RANGE)]


def test_long_read_is_requested_once():
    there = remote()
    content = bytes(range(256)) * 2000
    taken, requests = serve(there, there.parse(reader((0, 10), (10, 400_000), (300_000, 50))), content)
    assert taken == [content[:10], content[10:400_010], content[300_000:300_050]]
    assert requests == [RangeRequest(0, MIN_RANGE), RangeRequest(MIN_RANGE, 400_010 - MIN_RANGE)]


def test_unread_gap_is_not_requested():
    there = remote()
    content = bytes(10_000_000)
    _, requests = serve(there, there.parse(reader((0, 10), (9_000_000, 10), (8_999_000, 2000))), content)
    assert requests == [RangeRequest(0, MIN_RANGE), RangeRequest(9_000_000, MIN_RANGE), RangeRequest(8_999_000, 1000)]


def test_claimed_length_beyond_the_resource_is_not_requested():
    content = bytes(100_000)
    for claimed in (1 << 40, (1 << 63) + 5, (1 << 64) - 1):
        there = remote()
        taken, requests = serve(there, there.parse(reader((0, claimed), (claimed, claimed))), content)
        assert taken == [content, b""]
        assert requests == [RangeRequest(0, MIN_RANGE), RangeRequest(MIN_RANGE, 100_000 - MIN_RANGE)]


def test_metadata_over_the_limit_is_not_requested():
    there = remote(most=200_000)
    with pytest.raises(FetchError, match="exceeds the limit of 200000 bytes"):
        serve(there, there.parse(reader((0, 10), (0, 300_000))), bytes(1_000_000))


def test_empty_resource():
    there = remote()
    assert serve(there, there.parse(reader((0, 10), (10, 5))), b"") == ([b"", b""], [RangeRequest(0, MIN_RANGE)])


@given(
    content=st.binary(max_size=300),
    needs=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=8),
    base=st.integers(0, 50),
)
def test_parser_receives_the_bytes_of_the_resource(content, needs, base):
    there = remote()
    serve(there, there.parse(reader((0, 1))), content)
    there.base = base
    taken, _ = serve(there, there.parse(reader((0, 1), *needs)), content)
    assert taken == drive(reader((0, 1), *needs), reads_from(content[base:]))


def test_error_offsets_count_from_the_resource():
    there = remote()
    there.base = 7

    def refusing():
        yield ReadRequest(0, 1)
        raise FormatError("no", step="3.3 step 2", offset=3)

    with pytest.raises(FormatError) as refused:
        serve(there, there.parse(refusing()), b"x" * 20)
    assert refused.value.offset == 10


def test_kept_bytes_are_not_requested_again():
    there = remote()
    content = bytes(range(256)) * 1000
    serve(there, there.parse(reader((0, 1))), content)
    assert there.place(Location(10, 5)) == content[10:15]
    assert there.place(Location(MIN_RANGE - 5, 10)) == RangeRequest(MIN_RANGE - 5, 10)
    assert there.place(Location(255_990, 1 << 62)) == RangeRequest(255_990, 10)
    assert there.place(Location(1 << 62, 9)) == b""
    there.discard(MIN_RANGE - 5)
    assert there.place(Location(MIN_RANGE - 5, 5)) == content[MIN_RANGE - 5 : MIN_RANGE]
    assert there.place(Location(10, 5)) == RangeRequest(10, 5)


CONTENT = b"M" * 1000 + make_bundle(large=bytes(range(256)) * 300)
"""With other data before the bundle, so that offsets in the resource differ from those in the bundle."""
OPTIONS = OpenOptions("https://a.example/", "strict", True, None, True, 1 << 26, 1 << 30)


class Reply:
    def __init__(self, start, part, size):
        self.url = "https://a.example/"
        self.status = 206
        self.fields = {**SERVED, "content-range": f"bytes {start}-{start + len(part) - 1}/{size}"}


def run(work, content, *, size=50, cut=1 << 30):
    """Run work against the content of a server that sends chunks of `size` bytes; return its result and requests."""
    requests, chunks = [], iter(())
    try:
        step = next(work)
        while True:
            if isinstance(step, NextChunk):
                step = work.send(next(chunks, None))
                continue
            assert isinstance(step, Send)
            first, _, last = step.fields["Range"].removeprefix("bytes=").partition("-")
            start, stop = (int(first), int(last) + 1) if first else (max(0, len(content) - int(last)), len(content))
            part = content[start:stop]
            requests.append((start, len(part)))
            chunks = iter([part[at : at + size] for at in range(0, min(len(part), cut), size)])
            step = work.send(Reply(start, part, len(content)))
    except StopIteration as done:
        return done.value, requests


def opened(content=CONTENT):
    core = RangeCore(OPTIONS)
    _, requests = run(core.open(), content)
    return core, requests


def test_metadata_takes_two_requests_from_the_end():
    core, requests = opened()
    assert requests == [(len(CONTENT) - 9, 9), (1000, MIN_RANGE)]
    assert (core.start, core.size) == (1000, len(CONTENT) - 1000)
    with open_bundle(CONTENT, from_end=True) as bundle:
        assert core.metadata == bundle.metadata


def test_responses_are_loaded_and_streamed_as_from_a_file():
    core, _ = opened()
    with open_bundle(CONTENT, from_end=True) as bundle:
        for name in ("", "moved", "coded", "large", "last"):
            location, stored = bundle.metadata.requests[f"{SITE}/{name}"], bundle.response(f"{SITE}/{name}")
            loaded, _ = run(core.load(location), CONTENT)
            assert (loaded.status, loaded.stored_headers, loaded.body) == (
                stored.status,
                stored.stored_headers,
                stored.body,
            )
            for size in (1, 9, 100_000):
                begun, _ = run(streamed(core, location), CONTENT, size=size)
                assert begun == (stored.status, stored.stored_headers, stored.body), (name, size)


def streamed(core, location):
    begun = yield from core.begin(location)
    payload = []
    while chunks := (yield from begun.body.chunks()):
        payload += chunks
    return begun.head.status, begun.head.stored_headers, b"".join(payload)


def test_headers_are_decoded_before_the_payload_arrives():
    core, _ = opened()
    location = core.metadata.requests[f"{SITE}/large"]
    steps = []

    def watched():
        work = core.begin(location)
        step = next(work)
        while True:
            steps.append(step)
            try:
                step = work.send((yield step))
            except StopIteration as done:
                return done.value

    begun, _ = run(watched(), CONTENT, size=500)
    assert begun.head.payload.length == 300 * 256
    assert steps[1:] == [NEXT_CHUNK] * 3


def test_cut_bodies_are_refused():
    core, _ = opened()
    location = core.metadata.requests[f"{SITE}/large"]
    for work in (core.load(location), streamed(core, location)):
        with pytest.raises(FetchError, match="the body ended after 5000 of"):
            run(work, CONTENT, cut=5000)


def test_malformed_responses_are_refused_with_offsets_in_the_resource():
    core, _ = opened()
    location = core.metadata.requests[f"{SITE}/broken"]
    for work in (core.load(location), core.begin(location)):
        with pytest.raises(ResponseError) as refused:
            run(work, CONTENT)
        assert refused.value.offset == 1000 + location.offset


def test_resources_without_a_bundle_at_the_end_are_refused():
    for content in (b"short", b"x" * 100, b"x" * 20 + b"\x48" + b"\xff" * 8):
        with pytest.raises(FormatError, match=r"3\.3\.6 step [13]"):
            opened(content)


def test_payload_pieces_have_a_limited_size():
    payload = bytes(range(256)) * 1000
    pieces = list(payload_pieces(memoryview(payload)))
    assert b"".join(pieces) == payload
    assert max(map(len, pieces)) == 65_536
    assert list(payload_pieces(memoryview(b""))) == []
