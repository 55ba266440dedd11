"""A connection's states, with a stub of its socket; real connections are tested in tests/e2e."""

import asyncio
from collections.abc import Callable

import pytest

from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect
from headgate.proxy.http1 import Http1Connection, Http1State, response_head
from headgate.proxy.poller import READ, WRITE
from tests.unit.proxy.stubs import StubServices, StubSocket

CONNECT = b"CONNECT a.example:443 HTTP/1.1\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
GET_AND_CLOSE = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"


EXPECTED = {
    ("READING", "CONNECT"): "DECIDING",
    ("READING", "RESPONSE"): "RESPONDING",
    ("READING", "LAST_RESPONSE"): "CLOSING",
    ("READING", "LOST"): "CLOSED",
    ("DECIDING", "RESPONSE"): "RESPONDING",
    ("DECIDING", "LAST_RESPONSE"): "CLOSING",
    ("DECIDING", "ACCEPTED"): "HANDED_OVER",
    ("DECIDING", "LOST"): "CLOSED",
    ("RESPONDING", "SENT"): "READING",
    ("RESPONDING", "LOST"): "CLOSED",
    ("CLOSING", "SENT"): "LINGERING",
    ("CLOSING", "LOST"): "CLOSED",
    ("LINGERING", "LOST"): "CLOSED",
}
"""The state after each event in each state."""


class World:
    """A connection, its socket, and the decision, which waits until it is set."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[AcceptedConnect | RefusedConnect] = asyncio.get_running_loop().create_future()
        self.services = StubServices(self.decide)
        self.socket = StubSocket()
        self.connection = Http1Connection(self.services, self.socket, ("192.0.2.1", 5000))  # type: ignore[arg-type]

    async def decide(self, _request: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        return await self.outcome

    def receive(self, data: bytes) -> None:
        self.socket.received += data
        self.connection.ready(READ)

    async def decided(self, outcome: AcceptedConnect | RefusedConnect) -> None:
        self.outcome.set_result(outcome)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def accepted() -> AcceptedConnect:
    return AcceptedConnect(socket=StubSocket(), on_closed=lambda *_: None)  # type: ignore[arg-type]


REFUSED = RefusedConnect(status=403, reason="host")


PATHS = {
    "READING": "", "DECIDING": "CONNECT", "RESPONDING": "RESPONSE", "CLOSING": "LAST_RESPONSE",
    "LINGERING": "LAST_RESPONSE SENT", "HANDED_OVER": "CONNECT ACCEPTED", "CLOSED": "LOST",
}  # fmt: skip
"""The events that lead to each state."""


async def bring_to(world: World, state: Http1State) -> None:
    """Bring a new connection to a state."""
    for event in PATHS[state.name].split():
        await cause(world, event)
    assert world.connection.state is state


async def cause(world: World, event: str) -> None:
    """Cause an event."""
    connection = world.connection
    is_deciding = connection.state is Http1State.DECIDING
    match event:
        case "CONNECT":
            world.receive(CONNECT)
        case "RESPONSE":
            world.socket.capacity = 10
            if is_deciding:
                await world.decided(REFUSED)
            else:
                world.receive(GET)
        case "LAST_RESPONSE":
            world.socket.capacity = 10
            if is_deciding:
                connection._keep_alive = False
                await world.decided(REFUSED)
            else:
                world.receive(GET_AND_CLOSE)
        case "SENT":
            world.socket.capacity = 1 << 20
            connection.ready(WRITE)
        case "ACCEPTED":
            await world.decided(accepted())
        case "LOST":
            connection.expire()
    await asyncio.sleep(0)


@pytest.mark.parametrize("row", EXPECTED, ids="-".join)
async def test_each_event_changes_the_state(row: tuple[str, str]) -> None:
    state, event, expected = Http1State[row[0]], row[1], Http1State[EXPECTED[row]]
    world = World()
    await bring_to(world, state)
    await cause(world, event)
    assert world.connection.state is expected
    is_over = expected in {Http1State.CLOSED, Http1State.HANDED_OVER}
    assert (world.services.closed == [world.connection]) == is_over
    assert world.socket.closed == (expected is Http1State.CLOSED)
    assert bool(world.services.tunnels) == (event == "ACCEPTED")
    world.connection.abort()


@pytest.mark.parametrize("state", [Http1State.HANDED_OVER, Http1State.CLOSED])
async def test_nothing_changes_a_final_state(state: Http1State) -> None:
    world = World()
    await bring_to(world, state)
    world.connection.expire()
    world.connection.drain()
    world.connection.ready(WRITE)
    assert world.connection.state is state
    assert len(world.services.closed) == 1


def lost(world: World) -> None:
    world.socket.error = ConnectionResetError()
    world.connection.ready(READ)


def ended(world: World) -> None:
    world.socket.ended = True
    world.connection.ready(READ)


@pytest.mark.parametrize("leave", [lost, ended])
@pytest.mark.parametrize("state", [Http1State.READING, Http1State.DECIDING, Http1State.LINGERING])
async def test_a_client_that_leaves_is_noticed_in_every_state(
    leave: Callable[[World], None], state: Http1State
) -> None:
    world = World()
    await bring_to(world, state)
    leave(world)
    assert world.connection.state is Http1State.CLOSED
    await asyncio.sleep(0)
    assert world.outcome.cancelled() == (state is Http1State.DECIDING)


async def test_a_tunnel_for_a_client_that_has_left_is_closed() -> None:
    world = World()
    closed: list[tuple[object, ...]] = []
    await bring_to(world, Http1State.DECIDING)
    world.socket.error = ConnectionResetError()
    outcome = AcceptedConnect(socket=StubSocket(), on_closed=lambda *told: closed.append(told))  # type: ignore[arg-type]
    await world.decided(outcome)
    assert closed == [(0, 0, "client_gone")]
    assert outcome.socket.closed  # type: ignore[attr-defined]
    assert (world.connection.state, world.services.tunnels) == (Http1State.CLOSED, [])


async def test_a_head_has_a_deadline_of_its_own() -> None:
    world = World()
    timeouts, now = world.services.timeouts, world.services.loop_state.now
    assert world.connection.deadline == now + timeouts.idle
    for piece in (b"\r\n", b"CONN", b"ECT"):
        world.receive(piece)
        assert world.connection.deadline == now + timeouts.head
        world.services.loop_state.now += 1
    world.connection.abort()


def test_a_refusal_is_a_message() -> None:
    refused = RefusedConnect(
        status=403, fields=[("Retry-After", "0"), ("Proxy-Status", "headgate; details=x")], reason="host"
    )
    assert response_head(refused, is_last=False) == (
        b"HTTP/1.1 403 Forbidden\r\nRetry-After: 0\r\nProxy-Status: headgate; details=x\r\nContent-Length: 0\r\n\r\n"
    )
    assert response_head(RefusedConnect(status=400, reason="malformed"), is_last=True) == (
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
