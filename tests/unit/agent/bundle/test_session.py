"""headgate.agent.bundle.session."""

import asyncio

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agent.bundle.fetcher import AsyncFetcher, Fetcher
from headgate.agent.bundle.range_protocol import LengthChecked
from headgate.agent.bundle.session import NEXT_CHUNK, ArrivingBody, AsyncSession, Send, Session
from headgate.errors import FetchError

URL = "https://a.example/"


def work(urls):
    """Send GETs, and return the bodies of their replies, or the error of one that failed."""
    found = []
    for url in urls:
        try:
            reply = yield Send(url, {})
        except FetchError as error:
            found.append(str(error))
            continue
        parts = [str(reply.status).encode()]
        while (chunk := (yield NEXT_CHUNK)) is not None:
            parts.append(chunk)
        found.append(b" ".join(parts))
    return found


def network(request):
    if request.url.path == "/fails":
        raise httpx2.ConnectError("refused")
    return httpx2.Response(200, content=request.url.path.encode())


def run_both(make_work):
    """Run work with both kinds of client."""
    transport = httpx2.MockTransport(network)
    with httpx2.Client(transport=transport) as client, Session(Fetcher(client)) as session:
        found = session.run(make_work())

    async def run_async():
        async with (
            httpx2.AsyncClient(transport=transport) as client,
            AsyncSession(AsyncFetcher(client)) as session,
        ):
            return await session.run(make_work())

    assert asyncio.run(run_async()) == found
    return found


def test_work_receives_results_and_errors():
    found = run_both(lambda: work([f"{URL}one", f"{URL}fails", f"{URL}two"]))
    assert found == [b"200 /one", f"{URL}fails: refused", b"200 /two"]


def test_errors_that_work_does_not_handle_are_raised():
    def unhandled():
        yield Send(f"{URL}fails", {})

    with pytest.raises(FetchError, match="refused"):
        run_both(unhandled)


def test_abandoned_work_is_closed():
    closed = []

    def guarded():
        try:
            yield Send(f"{URL}fails", {})
        finally:
            closed.append(True)

    with pytest.raises(FetchError):
        run_both(guarded)
    assert closed == [True]


def body_of(content, sizes):
    """Return a body whose chunks have these sizes."""
    chunks, position = [], 0
    for size in [*sizes, len(content)]:
        chunks.append(content[position : position + size])
        position += size
    return ArrivingBody(iter(chunks))


@given(st.binary(max_size=200), st.integers(0, 220), st.integers(0, 220), st.lists(st.integers(0, 60), max_size=6))
def test_chunks_are_cut_to_the_requested_part(content, start, stop, sizes):
    with Session(Fetcher(httpx2.Client())) as session:
        assert b"".join(session.chunks(body_of(content, sizes), start, stop)) == content[start:stop]
        assert b"".join(session.chunks(body_of(content, sizes))) == content


def test_chunks_after_the_part_are_not_read():
    taken = []

    def chunks():
        for number in range(10):
            taken.append(number)
            yield b"12345"

    with Session(Fetcher(httpx2.Client())) as session:
        assert list(session.chunks(ArrivingBody(chunks()), 3, 7)) == [b"45", b"12"]
        assert list(session.chunks(ArrivingBody(chunks()), 0, 0)) == []
    assert taken == [0, 1]


def test_a_body_shorter_than_announced_is_refused():
    def read():
        reply = yield Send(f"{URL}one", {})
        body = ArrivingBody(iter([b"kept"]), LengthChecked(reply.url, 20))
        while (yield from body.chunks()):
            pass

    with pytest.raises(FetchError, match="the body ended after 4 of 20 bytes"):
        run_both(read)
