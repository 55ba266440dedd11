import asyncio

import pytest

from headgate.runtime.demo.origin import OriginProcess, Workers, _Connection

GET = b"GET /news HTTP/1.1\r\nHost: a\r\n\r\n"
ADVICE = b"GET /.well-known/traffic-advice HTTP/1.1\r\nHost: a\r\n\r\n"


def test_workers_serve_in_the_order_of_arrival():
    workers = Workers(2, 0.1)
    assert [workers.finish(now=5.0) for _ in range(5)] == pytest.approx([5.1, 5.1, 5.2, 5.2, 5.3])
    assert workers.finish(now=6.0) == pytest.approx(6.1)


def test_under_overload_every_response_becomes_late():
    workers = Workers(10, 0.1)
    waits = [workers.finish(now=n / 1000) - n / 1000 for n in range(3000)]
    assert waits[0] == pytest.approx(0.1)
    assert waits[2999] == pytest.approx(27.1, abs=0.2)  # 3000 requests at 100 a second, less the 3 s that passed


def test_a_request_that_would_wait_too_long_is_refused():
    workers = Workers(1, 10.0)
    assert [workers.finish(now=0.0) for _ in range(6)] == [10.0, 20.0, 30.0, 40.0, None, None]
    assert workers.finish(now=10.0) == 50.0


class Transport:
    def __init__(self):
        self.written = b""
        self.closed = False

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


class StubOrigin:
    accepts = True

    def __init__(self):
        self.scheduled = []

    def schedule(self, connection):
        self.scheduled.append(connection)
        return self.accepts


@pytest.fixture
def connection():
    made = _Connection(StubOrigin())
    made.connection_made(Transport())
    return made


@pytest.mark.parametrize("size", [1, 7, len(GET)])
def test_a_request_in_pieces_is_scheduled_once(connection, size):
    for at in range(0, len(GET), size):
        assert connection._origin.scheduled == []
        connection.data_received(GET[at : at + size])
    assert connection._origin.scheduled == [connection]
    connection.respond(b"200 OK", b"page")
    assert connection._transport.written.startswith(b"HTTP/1.1 200 OK\r\nDate: ")
    assert connection._transport.written.endswith(b"\r\nContent-Length: 4\r\n\r\npage")


def test_the_origin_has_no_advice_and_that_costs_no_worker(connection):
    connection.data_received(ADVICE)
    assert connection._transport.written.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert connection._origin.scheduled == []


def test_a_full_queue_and_a_long_head_close_the_connection(connection):
    connection._origin.accepts = False
    connection.data_received(GET)
    assert connection._transport.closed
    connection.respond(b"200 OK", b"late")
    assert connection._transport.written == b""
    other = _Connection(StubOrigin())
    other.connection_made(Transport())
    other.data_received(b"x" * 20_000)
    assert other._transport.closed


def test_work_goes_on_for_a_client_that_has_left():
    class Configuration:
        workers = 1
        service_time = 0.01

    async def serve():
        origin, answered = OriginProcess(Configuration()), asyncio.Event()

        class Other:
            def respond(self, *_):
                answered.set()

        left = _Connection(origin)
        left.connection_made(Transport())
        assert origin.schedule(left)
        free_at = origin._workers._free_at[0]
        left.connection_lost(None)
        assert origin.schedule(Other())
        assert origin._workers._free_at[0] == pytest.approx(free_at + Configuration.service_time)
        await asyncio.wait_for(answered.wait(), 5)

    asyncio.run(serve())
