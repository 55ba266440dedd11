"""A connection's states, with a stub of its socket."""

import asyncio

import pytest
from hpack import Encoder
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame

from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect
from headgate.proxy.http2.buffers import SharedBuffers
from headgate.proxy.http2.connection import Http2Connection
from headgate.proxy.http2.events import TRANSITIONS, Http2Event, Http2State
from headgate.proxy.http2.frames import PREFACE, ErrorCode
from headgate.proxy.poller import READ, WRITE
from tests.e2e.http2_client import async_test
from tests.unit.proxy.stubs import StubServices, StubSocket

CONNECT = Encoder().encode([(":method", "CONNECT"), (":authority", "a.example:443")])
REQUEST = HeadersFrame(1, data=CONNECT, flags=["END_HEADERS"]).serialize()


EXPECTED = {
    ("OPEN", "DRAIN"): "DRAINING",
    ("OPEN", "CLOSE"): "CLOSING",
    ("OPEN", "LOST"): "CLOSED",
    ("DRAINING", "CLOSE"): "CLOSING",
    ("DRAINING", "LOST"): "CLOSED",
    ("CLOSING", "FLUSHED"): "LINGERING",
    ("CLOSING", "LOST"): "CLOSED",
    ("LINGERING", "LOST"): "CLOSED",
}
"""Every row of the table, by state and event."""


class World:
    """A connection and its socket; its one request waits for a decision."""

    def __init__(self) -> None:
        self.services = StubServices(self.decide)
        self.socket = StubSocket()
        self.connection = Http2Connection(
            self.services,  # type: ignore[arg-type]
            self.socket,  # type: ignore[arg-type]
            ("192.0.2.1", 5000),
            buffers=SharedBuffers(),
            surplus=False,
        )
        self.connection.ready(WRITE)
        self.receive(PREFACE + SettingsFrame(0).serialize() + REQUEST)

    async def decide(self, _request: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        await asyncio.Event().wait()
        raise AssertionError

    def receive(self, data: bytes) -> None:
        self.socket.received += data
        self.connection.ready(READ)


def bring_to(world: World, state: Http2State) -> None:
    """Bring a new connection to a state."""
    match state:
        case Http2State.DRAINING:
            world.connection.drain()
        case Http2State.CLOSING:
            world.socket.capacity = 5
            world.connection.close(ErrorCode.NO_ERROR, "test")
        case Http2State.LINGERING:
            world.connection.close(ErrorCode.NO_ERROR, "test")
        case Http2State.CLOSED:
            world.connection.abort()
    assert world.connection.state is state


def cause(world: World, event: Http2Event) -> None:
    """Cause an event."""
    match event:
        case Http2Event.DRAIN:
            world.connection.drain()
        case Http2Event.CLOSE:
            world.socket.capacity = 5
            world.receive(DataFrame(99, data=b"x").serialize())
        case Http2Event.FLUSHED:
            world.socket.capacity = 1 << 20
            world.connection.ready(WRITE)
        case Http2Event.LOST:
            world.socket.ended = True
            world.socket.error = ConnectionResetError()
            world.connection.ready(READ | WRITE)


@pytest.mark.parametrize("row", EXPECTED, ids="-".join)
@async_test
async def test_each_row_of_the_table(row: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    state, event, expected = Http2State[row[0]], Http2Event[row[1]], Http2State[EXPECTED[row]]
    # Input is discarded below TLS, by the method of a plain socket.
    monkeypatch.setattr("socket.socket.recv_into", lambda stub, buffer: stub.recv_into(buffer))
    world = World()
    bring_to(world, state)
    cause(world, event)
    assert world.connection.state is expected
    is_closed = expected is Http2State.CLOSED
    assert (world.services.closed == [world.connection]) == is_closed == world.socket.closed
    is_active = expected in {Http2State.OPEN, Http2State.DRAINING}
    assert world.connection.tunnels == is_active
    world.connection.abort()
    await asyncio.sleep(0)


def test_the_table_has_no_other_rows() -> None:
    assert {(state.name, event.name) for state, event in TRANSITIONS} == EXPECTED.keys()


@async_test
async def test_nothing_changes_the_final_state() -> None:
    world = World()
    bring_to(world, Http2State.CLOSED)
    for act in (world.connection.drain, world.connection.expire, world.connection.finish_turn):
        act()
        world.connection.close(ErrorCode.NO_ERROR, "again")
    assert world.connection.state is Http2State.CLOSED
    assert world.services.closed == [world.connection]
