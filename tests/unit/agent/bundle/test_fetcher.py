import asyncio
import socket
import threading
import time
from contextlib import closing, suppress

import httpx2
import pytest

from headgate.agent.bundle.fetcher import AsyncFetcher, Fetcher
from headgate.errors import FetchError
from headgate.fetch.pace import MIN_RATE

URL = "https://a.example/"
PATIENCE = 60.0


class Clock:
    """A clock that a network moves."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("headgate.fetch.pace.Pace.__init__.__defaults__", (lambda: self.now,))


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def body(clock, seconds, count=100, size=1000):
    """Chunks that take so many seconds each."""
    for _ in range(count):
        clock.now += seconds
        yield bytes(size)


class Stream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, chunks):
        self.chunks = chunks

    def __iter__(self):
        yield from self.chunks

    async def __aiter__(self):
        for chunk in self.chunks:
            yield chunk


def read(chunks, *, is_async, pause=lambda: None):
    """Fetch a body in these chunks; `pause` is called between them."""
    network = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Stream(chunks)))
    total = 0
    if not is_async:
        with httpx2.Client(transport=network) as client, Fetcher(client, timeout=10.0).get(URL, {}) as reply:
            for chunk in reply.chunks():
                total += len(chunk)
                pause()
        return total

    async def fetched():
        total = 0
        async with (
            httpx2.AsyncClient(transport=network) as client,
            AsyncFetcher(client, timeout=10.0).get(URL, {}) as reply,
        ):
            async for chunk in reply.achunks():
                total += len(chunk)
                pause()
        return total

    return asyncio.run(fetched())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_body_may_take_the_time_it_needs_at_the_slowest_pace(clock, is_async):
    assert read(body(clock, 1000 / MIN_RATE), is_async=is_async) == 100_000
    assert clock.now > 20


@pytest.mark.parametrize("is_async", [False, True])
def test_a_body_that_is_slower_is_given_up_once_patience_is_used_up(clock, is_async):
    with pytest.raises(FetchError, match=r"slower than 4096 bytes a second; given up after \d+ bytes"):
        read(body(clock, 2000 / MIN_RATE), is_async=is_async)
    assert 10 < clock.now < 25


@pytest.mark.parametrize("is_async", [False, True])
def test_the_time_that_the_reader_takes_is_not_the_servers(clock, is_async):
    def pause():
        clock.now += 60

    assert read(body(clock, 0.001), is_async=is_async, pause=pause) == 100_000


class DrippingServer:
    """Answers every connection with a head that does not end, a byte at a time, until the client closes it."""

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def __exit__(self, *_):
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection):
        with suppress(OSError), connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while True:
                time.sleep(0.01)
                connection.sendall(b"a")


def hanging():
    """Give an event that a network waits for, and no longer than a test may take."""
    released = threading.Event()
    return released, lambda: released.wait(30)


def fetched_in_sync(transport):
    with httpx2.Client(transport=transport) as client, Fetcher(client, timeout=0.05).get(URL, {}) as reply:
        return list(reply.chunks())


async def fetched_in_async(transport):
    async with (
        httpx2.AsyncClient(transport=transport) as client,
        AsyncFetcher(client, timeout=0.05).get(URL, {}) as reply,
    ):
        return [chunk async for chunk in reply.achunks()]


def test_a_head_that_does_not_end_is_given_up():
    """As one that comes byte by byte: the client's own timeout is that of each byte."""
    released, hang = hanging()
    late = []

    def network(request):
        hang()
        late.append(httpx2.Response(200, stream=Stream([b"late"])))
        return late[0]

    with pytest.raises(FetchError, match=f"{URL}: TimeoutError"):
        fetched_in_sync(httpx2.MockTransport(network))
    assert not late
    released.set()


def test_timeout_of_its_own_client_ends_the_blocked_thread():
    before = set(threading.enumerate())
    with DrippingServer() as url, closing(Fetcher(timeout=0.05)) as fetcher:
        with pytest.raises(FetchError, match="TimeoutError"), fetcher.get(url, {}):
            pass
        (blocked,) = (thread for thread in set(threading.enumerate()) - before if thread.name == "headgate-fetch")
        blocked.join(PATIENCE)
        assert not blocked.is_alive()
        with pytest.raises(FetchError, match="TimeoutError"), fetcher.get(url, {}):
            pass  # the client that replaced it sends requests too


def test_a_chunk_that_does_not_end_is_given_up():
    released, hang = hanging()

    class Hanging(Stream):
        def __iter__(self):
            yield b"first"
            hang()
            yield b"second"

        async def __aiter__(self):
            yield b"first"
            await asyncio.sleep(30)
            yield b"second"

    network = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Hanging([])))
    with pytest.raises(FetchError, match="slower than 4096 bytes a second; given up after 5 bytes"):
        fetched_in_sync(network)
    assert not released.is_set()
    released.set()
    with pytest.raises(FetchError, match="slower than 4096 bytes a second; given up after 5 bytes"):
        asyncio.run(fetched_in_async(network))


@pytest.mark.parametrize("error", [httpx2.ReadTimeout(""), httpx2.UnsupportedProtocol("no such thing")])
def test_what_goes_wrong_names_the_url_and_says_what(error):
    def fails(request):
        raise error

    with (
        httpx2.Client(transport=httpx2.MockTransport(fails)) as client,
        pytest.raises(FetchError) as refused,
        Fetcher(client).get(URL, {}),
    ):
        pass
    said = f": {error}" if str(error) else ""
    assert str(refused.value) == f"{URL}: {type(error).__name__}{said}"
    assert refused.value.__cause__ is error


def test_invalid_url_is_reported():
    with pytest.raises(FetchError, match="InvalidURL"), Fetcher().get("https://a.example:port/", {}):
        pass


def test_a_client_that_was_given_stays_open_and_its_own_does_not():
    with httpx2.Client() as client:
        Fetcher(client).close()
        assert not client.is_closed
    own = Fetcher()
    own.close()
    with pytest.raises(RuntimeError, match="closed"), own.get(URL, {}):
        pass
