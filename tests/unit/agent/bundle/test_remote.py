import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agent.bundle.parts import Ask, Resource
from headgate.agent.bundle.remote import GUESS, RemoteBytes, opening
from headgate.bundle.format.incremental import ReadRequest, drive, reads_from
from headgate.bundle.model import Location
from headgate.errors import FetchError, FormatError
from tests.e2e.bundle_site import make_bundle

SERVED = {"content-type": "application/webbundle", "x-content-type-options": "nosniff"}


def remote(most=1 << 30):
    return RemoteBytes(Resource("https://a.example/"), max_metadata=most)


def serve(bytes_there, program, content):
    """Run a program against content that a server has; return its result and what it asked for."""
    asked = []
    try:
        ask = next(program)
        while True:
            asked.append(ask)
            start = max(0, len(content) - ask.length) if ask.offset is None else ask.offset
            part = content[start : start + ask.length]
            fields = {**SERVED, "content-range": f"bytes {start}-{start + len(part) - 1}/{len(content)}"}
            if not content:
                fields["content-range"] = "bytes */0"
            status = 206 if content else 416
            judged = bytes_there.resource.judge(ask, status, fields, url="https://a.example/")
            assert judged == len(part)
            ask = program.send(part)
    except StopIteration as done:
        return done.value, asked


def reader(*needs):
    """A parser that wants these bytes, and returns them."""
    taken = []
    for need in needs:
        taken.append(bytes((yield ReadRequest(*need))))  # noqa: PERF401 - a comprehension cannot yield
    return taken


def test_small_needs_are_met_by_one_guess():
    there = remote()
    content = bytes(range(256)) * 300
    taken, asked = serve(there, there.parse(reader((0, 10), (10, 5), (15, 1000))), content)
    assert taken == [content[:10], content[10:15], content[15:1015]]
    assert asked == [Ask(0, GUESS)]


def test_what_lies_behind_the_guess_is_asked_for_once_and_whole():
    there = remote()
    content = bytes(range(256)) * 2000
    taken, asked = serve(there, there.parse(reader((0, 10), (10, 400_000), (300_000, 50))), content)
    assert taken == [content[:10], content[10:400_010], content[300_000:300_050]]
    assert asked == [Ask(0, GUESS), Ask(GUESS, 400_010 - GUESS)]


def test_a_gap_that_nobody_reads_is_not_fetched():
    there = remote()
    content = bytes(10_000_000)
    _, asked = serve(there, there.parse(reader((0, 10), (9_000_000, 10), (8_999_000, 2000))), content)
    assert asked == [Ask(0, GUESS), Ask(9_000_000, GUESS), Ask(8_999_000, 1000)]


@pytest.mark.parametrize("claimed", [1 << 40, (1 << 63) + 5, (1 << 64) - 1])
def test_a_claimed_length_is_not_asked_for_beyond_what_there_is(claimed):
    there = remote()
    content = bytes(100_000)
    taken, asked = serve(there, there.parse(reader((0, claimed), (claimed, claimed))), content)
    assert taken == [content, b""]
    assert asked == [Ask(0, GUESS), Ask(GUESS, 100_000 - GUESS)]


def test_more_than_is_allowed_is_not_asked_for():
    there = remote(most=200_000)
    with pytest.raises(FetchError, match="metadata of more than 200000 bytes"):
        serve(there, there.parse(reader((0, 10), (0, 300_000))), bytes(1_000_000))


def test_an_empty_resource_gives_nothing():
    there = remote()
    assert serve(there, there.parse(reader((0, 10), (10, 5))), b"") == ([b"", b""], [Ask(0, GUESS)])


@given(
    content=st.binary(max_size=300),
    needs=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=8),
    base=st.integers(0, 50),
)
def test_however_it_is_fetched_a_parser_gets_what_it_would_get_of_the_bytes(content, needs, base):
    there = remote()
    serve(there, there.parse(reader((0, 1))), content)
    there.base = base
    taken, _ = serve(there, there.parse(reader((0, 1), *needs)), content)
    assert taken == drive(reader((0, 1), *needs), reads_from(content[base:]))


def test_refusals_are_placed_in_the_resource():
    there = remote()
    there.base = 7

    def refusing():
        yield ReadRequest(0, 1)
        raise FormatError("no", step="3.3 step 2", offset=3)

    with pytest.raises(FormatError) as refused:
        serve(there, there.parse(refusing()), b"x" * 20)
    assert refused.value.offset == 10


def test_what_is_here_is_placed_and_the_rest_is_asked_for():
    there = remote()
    content = bytes(range(256)) * 1000
    serve(there, there.parse(reader((0, 1))), content)
    assert there.place(Location(10, 5)) == content[10:15]
    assert there.place(Location(GUESS - 5, 10)) == Ask(GUESS - 5, 10)
    assert there.place(Location(255_990, 1 << 62)) == Ask(255_990, 10)
    assert there.place(Location(1 << 62, 9)) == b""
    there.forget(GUESS - 5)
    assert there.place(Location(GUESS - 5, 5)) == content[GUESS - 5 : GUESS]
    assert there.place(Location(10, 5)) == Ask(10, 5)


def test_of_an_open_bundle_only_what_is_fetched_of_its_responses_is_kept():
    there, content = remote(), make_bundle()
    metadata, asked = serve(there, opening(there, profile="strict", from_end=False, base_url=None), content)
    responses = metadata.sections[-1].offset
    assert asked == [Ask(0, GUESS)]
    assert there.place(Location(0, 10)) == Ask(0, 10)
    assert there.place(Location(responses, 10)) == content[responses : responses + 10]


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 100, b"x" * 20 + b"\x48" + b"\xff" * 8])
def test_no_bundle_at_the_end(content):
    there = remote()
    with pytest.raises(FormatError, match=r"3\.3\.6 step [13]"):
        serve(there, opening(there, profile="strict", from_end=True, base_url=None), content)
