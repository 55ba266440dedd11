import socket
import threading
import time
from contextlib import closing, suppress

import httpx2
import pytest

from headgate.advice.fetching import AdviceRequest
from headgate.agent.bundle.fetcher import Fetcher
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


class Stream(httpx2.SyncByteStream):
    def __init__(self, chunks):
        self.chunks = chunks

    def __iter__(self):
        yield from self.chunks


def read(chunks, pause=lambda: None):
    """Fetch a body in these chunks; `pause` is called between them."""
    network = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Stream(chunks)))
    total = 0
    with httpx2.Client(transport=network) as client, Fetcher(client, timeout=10.0).get(URL, {}) as reply:
        for chunk in reply.chunks():
            total += len(chunk)
            pause()
    return total


def test_body_at_the_minimum_rate_is_read(clock):
    assert read(body(clock, 1000 / MIN_RATE)) == 100_000
    assert clock.now > 20


def test_slower_body_is_given_up(clock):
    with pytest.raises(FetchError, match=r"slower than 4096 bytes a second; given up after \d+ bytes"):
        read(body(clock, 2000 / MIN_RATE))
    assert 10 < clock.now < 25


def test_time_of_the_reader_does_not_count(clock):
    def pause():
        clock.now += 60

    assert read(body(clock, 0.001), pause) == 100_000


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
    released = threading.Event()

    class Hanging(Stream):
        def __iter__(self):
            yield b"first"
            released.wait(30)
            yield b"second"

    network = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Hanging([])))
    with httpx2.Client(transport=network) as client, Fetcher(client).get(URL, {}) as reply:
        chunks = reply.chunks()
        assert next(chunks) == b"first"
        reply._pace._patience = 0.01  # a short timeout from here on: the head may take its time
        with pytest.raises(FetchError, match="slower than 4096 bytes a second; given up after 5 bytes"):
            next(chunks)
        released.set()


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
