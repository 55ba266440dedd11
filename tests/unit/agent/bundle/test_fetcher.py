import asyncio
import mmap
import socket
import threading
import time
from contextlib import closing, suppress

import httpx2
import pytest

from headgate.advice.fetching import AdviceRequest
from headgate.agent.bundle.fetcher import AsyncFetcher, Download, FetchBackoff, Fetcher
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
def test_body_at_the_minimum_rate_is_read(clock, is_async):
    assert read(body(clock, 1000 / MIN_RATE), is_async=is_async) == 100_000
    assert clock.now > 20


@pytest.mark.parametrize("is_async", [False, True])
def test_slower_body_is_given_up(clock, is_async):
    with pytest.raises(FetchError, match=r"slower than 4096 bytes a second; given up after \d+ bytes"):
        read(body(clock, 2000 / MIN_RATE), is_async=is_async)
    assert 10 < clock.now < 25


@pytest.mark.parametrize("is_async", [False, True])
def test_time_of_the_reader_does_not_count(clock, is_async):
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
    """Return an event, and a function that waits for it for a limited time."""
    released = threading.Event()
    return released, lambda: released.wait(30)


def fetched_in_sync(transport):
    with httpx2.Client(transport=transport) as client, Fetcher(client, timeout=0.05).get(URL, {}) as reply:
        return list(reply.chunks())


def test_endless_head_is_given_up():
    """The client's own timeout is for each byte, so it does not limit a head that is sent byte by byte."""
    released, hang = hanging()
    late = []

    def network(request):
        hang()
        late.append(httpx2.Response(200, stream=Stream([b"late"])))
        return late[0]

    with pytest.raises(FetchError, match=f"{URL}: the server did not respond in time"):
        fetched_in_sync(httpx2.MockTransport(network))
    assert not late
    released.set()


def test_renewed_client_ends_the_blocked_thread():
    before = set(threading.enumerate())
    with DrippingServer() as url, closing(Fetcher(timeout=0.05)) as fetcher:
        with pytest.raises(FetchError, match="did not respond in time"), fetcher.get(url, {}):
            pass
        fetcher.renew()
        for thread in set(threading.enumerate()) - before:
            if thread.name == "headgate-fetch":  # unless it has ended already
                thread.join(PATIENCE)
                assert not thread.is_alive()
        with pytest.raises(FetchError, match="did not respond in time"), fetcher.get(url, {}):
            pass  # the client that replaced it sends requests too


def test_advice_fetch_through_a_replaced_client_is_a_local_failure(monkeypatch):
    """A failed fetch of another URL closes the client: that says nothing about the origin of the advice."""
    fetcher = Fetcher()

    def interrupted(request, **_options):
        fetcher.renew()
        raise httpx2.ReadError("the connection was closed")

    monkeypatch.setattr(fetcher._client, "send", interrupted)
    with closing(fetcher), pytest.raises(httpx2.ReadError):
        fetcher.get_advice(AdviceRequest("https://a.example/", ()))


def test_endless_chunk_is_given_up():
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
    with httpx2.Client(transport=network) as client, Fetcher(client).get(URL, {}) as reply:
        chunks = reply.chunks()
        assert next(chunks) == b"first"
        reply._pace._patience = 0.01  # a short timeout from here on: the head may take its time
        with pytest.raises(FetchError, match="slower than 4096 bytes a second; given up after 5 bytes"):
            next(chunks)
        released.set()

    async def fetch():
        async with httpx2.AsyncClient(transport=network) as client, AsyncFetcher(client).get(URL, {}) as reply:
            chunks = reply.achunks()
            assert await anext(chunks) == b"first"
            reply._pace._patience = 0.01
            with pytest.raises(FetchError, match="slower than 4096 bytes a second; given up after 5 bytes"):
                await anext(chunks)

    asyncio.run(fetch())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (httpx2.ReadTimeout(""), "the server did not respond in time"),
        (httpx2.UnsupportedProtocol("no such thing"), "no such thing"),
        (httpx2.ConnectError("[Errno 111] Connection refused"), "Connection refused"),
    ],
)
def test_client_errors_become_fetch_errors_with_the_url_and_the_reason(error, reason):
    def fails(request):
        raise error

    with (
        httpx2.Client(transport=httpx2.MockTransport(fails)) as client,
        pytest.raises(FetchError) as refused,
        Fetcher(client).get(URL, {}),
    ):
        pass
    assert str(refused.value) == f"{URL}: {reason}"
    assert refused.value.__cause__ is error


def test_invalid_url_is_reported():
    with pytest.raises(FetchError, match="port"), Fetcher().get("https://a.example:port/", {}):
        pass


def test_given_client_stays_open():
    with httpx2.Client() as client:
        given = Fetcher(client)
        given.renew()
        given.close()
        assert not client.is_closed
    own = Fetcher()
    own.close()
    with pytest.raises(RuntimeError, match="closed"), own.get(URL, {}):
        pass


BUNDLE_URL = "https://a.example/x.wbn"


def test_mapped_bytes_outlive_the_download():
    with Download(BUNDLE_URL, {}, max_bytes=10) as download:
        download.add(b"abc")
        download.add(b"defg")
        kept = download.mapped()
    assert isinstance(kept, mmap.mmap)
    assert kept[:] == b"abcdefg"


def test_empty_download():
    with Download(BUNDLE_URL, {}, max_bytes=10) as download:
        assert download.mapped() == b""


def test_bodies_over_the_limit_are_refused():
    for stated in ("11", "9" * 30):
        with pytest.raises(FetchError, match="longer than the limit of 10 bytes"):
            Download(BUNDLE_URL, {"content-length": stated}, max_bytes=10)
    for stated in ("10", "", "many", "-5"):
        with Download(BUNDLE_URL, {"content-length": stated}, max_bytes=10) as download:
            download.add(b"x" * 10)
            with pytest.raises(FetchError, match="longer than the limit of 10 bytes"):
                download.add(b"x")


NOW = 1_800_000_000.0
FIRST, SECOND, THIRD = (0.7 * 1.4**count for count in (1, 2, 3))


def fail(backoff, retry_after="", *, sent=NOW, now=NOW, draw=0.0):
    backoff.failed("https://a.example/x.wbn: why", retry_after, sent=sent, now=now, draw=draw)


def held(backoff, now):
    """Say for how long it is held, as the sentence does; None where it is not."""
    try:
        backoff.check(now=now)
    except FetchError as error:
        return str(error).rpartition("; ")[2]
    return None


def pause(backoff, now=NOW, most=2_000.0):
    """Return the seconds until it may be fetched, to a millisecond."""
    step = 0.001
    low, high = 0, round(most / step)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if held(backoff, now + middle * step) else (low, middle)
    return low * step


def test_nothing_is_held_without_a_failure():
    assert held(FetchBackoff(), NOW) is None


def test_pauses_grow_with_failures_and_are_jittered():
    backoff = FetchBackoff()
    for count, (expected, now) in enumerate(zip((FIRST, SECOND, THIRD), (NOW, NOW + 10, NOW + 20), strict=True)):
        fail(backoff, sent=now, now=now)
        assert pause(backoff, now) == pytest.approx(expected, abs=0.002), count
    other = FetchBackoff()
    fail(other, draw=0.999)
    assert pause(other) == pytest.approx(FIRST * 0.9, abs=0.002)


def test_error_names_the_failure_and_the_remaining_pause():
    backoff = FetchBackoff()
    fail(backoff, "30")
    fail(backoff)
    with pytest.raises(FetchError, match=r"^https://a\.example/x\.wbn: why; it may be fetched again in 30\.0 s$"):
        backoff.check(now=NOW)
    fail(backoff, "9" * 400)
    assert held(backoff, NOW + 1e12) == "it is not fetched again"


def test_retry_after_lengthens_the_pause():
    backoff = FetchBackoff()
    fail(backoff, "100")
    assert pause(backoff) == pytest.approx(100.0, abs=0.002)


def test_useless_retry_after_leaves_the_backoff():
    backoff = FetchBackoff()
    fail(backoff, "0")
    assert pause(backoff) == pytest.approx(FIRST, abs=0.002)


def test_request_sent_at_the_last_failure_counts():
    backoff = FetchBackoff()
    fail(backoff)
    fail(backoff)
    assert pause(backoff) == pytest.approx(SECOND, abs=0.002)


def test_parallel_requests_are_one_failure():
    backoff = FetchBackoff()
    for now in (NOW + 0.1, NOW + 0.2, NOW + 0.3):
        fail(backoff, sent=NOW, now=now)
    assert pause(backoff, NOW + 0.3) == pytest.approx(FIRST, abs=0.002)


def test_later_failure_does_not_shorten_retry_after():
    backoff = FetchBackoff()
    fail(backoff, "120", sent=NOW, now=NOW)
    fail(backoff, sent=NOW - 1, now=NOW + 20)
    assert pause(backoff, NOW + 20) == pytest.approx(100.0, abs=0.002)


def test_success_removes_one_failure_and_no_pause():
    backoff = FetchBackoff()
    fail(backoff)
    fail(backoff, sent=NOW + 10, now=NOW + 10)
    backoff.succeeded()
    assert held(backoff, NOW + 10) is not None
    fail(backoff, sent=NOW + 20, now=NOW + 20)
    assert pause(backoff, NOW + 20) == pytest.approx(SECOND, abs=0.002)
    for _ in range(5):
        backoff.succeeded()
    assert held(backoff, NOW + 20) is not None
    fail(backoff, sent=NOW + 30, now=NOW + 30)
    assert pause(backoff, NOW + 30) == pytest.approx(FIRST, abs=0.002)


def test_clock_set_back_does_not_lengthen_the_pause():
    backoff = FetchBackoff()
    fail(backoff, "100")
    fail(backoff, sent=NOW, now=NOW - 3600)
    assert held(backoff, NOW - 7200) == "it may be fetched again in 100.0 s"
    assert held(backoff, NOW - 7200 + 99) is not None
    assert held(backoff, NOW - 7200 + 100) is None


def test_pause_is_at_most_the_policys_maximum():
    backoff = FetchBackoff()
    for count in range(3_000):
        fail(backoff, sent=NOW + 1_000 * count, now=NOW + 1_000 * count)
    assert pause(backoff, NOW + 1_000 * 2_999) == pytest.approx(900.0, abs=0.002)
