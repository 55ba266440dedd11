"""Tunnels: what is relayed, what is waited for, limits, deadlines and ends."""

import gc
import socket
import ssl
import weakref

import pytest

from headgate.proxy.poller import READ, WRITE
from headgate.proxy.tunnel import TlsTunnelEnd
from tests.unit.proxy.tunnel import Tunnelled, tunnelled


def send(one: Tunnelled, count: int) -> None:
    """Send from the client."""
    one.client.send(b"x" * count)
    one.tunnel.client_end.ready(READ)
    one.drain(one.target)


def receive(one: Tunnelled, count: int) -> None:
    """Send to the client."""
    one.target.send(b"x" * count)
    one.tunnel.target_end.ready(READ)
    one.drain(one.client)


def test_early_data_is_sent_first() -> None:
    with tunnelled(early=b"hello ") as one:
        one.client.send(b"world")
        one.tunnel.client_end.ready(READ)
        assert one.target.recv(100) == b"hello world"
    assert one.told == [(0, 11, "drained")]


def test_an_idle_tunnel_is_closed() -> None:
    with tunnelled(idle=10) as one:
        one.state.now += 9
        one.tunnels.expire()
        receive(one, 1)
        one.state.now += 9
        one.tunnels.expire()
        assert not one.told
        one.state.now += 1
        one.tunnels.expire()
        assert one.told == [(1, 0, "idle")]


def test_a_tunnel_that_is_read_slowly_is_not_idle() -> None:
    with tunnelled(idle=10) as one:
        one.tunnel.client_end.write(memoryview(b"x" * 5_000_000))
        for _ in range(3):
            one.state.now += 9
            one.client.recv(300_000)
            one.tunnel.client_end.ready(4)
            one.tunnels.expire()
        assert not one.told


def test_closed_tunnels_leave_no_reference_cycles() -> None:
    """Thousands of tunnels end per second; a search of the memory for each of their cycles would cost more."""
    gc.disable()
    try:
        with tunnelled() as one:
            gone = [weakref.ref(sock) for sock in (one.near, one.far)]
            one.near = one.far = one.client
            one.tunnel.close("idle")
            one.tunnel = None
            assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


def test_the_source_is_not_read_while_data_is_buffered() -> None:
    with tunnelled() as one:
        near, far = one.tunnel.client_end, one.tunnel.target_end
        sent = 0
        while one.wanted == [READ, READ]:
            sent += one.fill(one.client)
            near.ready(READ)
        assert one.wanted == [0, READ | WRITE]
        assert far.is_blocked
        received = len(one.drain(one.target))
        while far.is_blocked:
            far.ready(WRITE)
            received += len(one.drain(one.target))
        assert one.wanted == [READ, READ]
        while received < sent:
            near.ready(READ)
            far.ready(WRITE)
            received += len(one.drain(one.target))
        assert received == sent
        assert one.state.buffered == 0


def test_a_half_close_is_passed_on() -> None:
    with tunnelled() as one:
        near, far = one.tunnel.client_end, one.tunnel.target_end
        one.client.send(b"hello")
        one.client.shutdown(socket.SHUT_WR)
        near.ready(READ)
        near.ready(READ)
        assert (one.target.recv(100), one.target.recv(100)) == (b"hello", b"")
        assert one.wanted == [0, READ]
        one.target.send(b"world!")
        far.ready(READ)
        assert one.client.recv(100) == b"world!"
        assert not one.told
        one.target.shutdown(socket.SHUT_WR)
        far.ready(READ)
        assert one.client.recv(100) == b""
        assert one.told == [(6, 5, "ended")]


def test_an_end_follows_buffered_data() -> None:
    with tunnelled() as one:
        near, far = one.tunnel.client_end, one.tunnel.target_end
        sent = one.fill(one.client)
        while one.wanted == [READ, READ]:
            near.ready(READ)
            sent += one.fill(one.client)
        one.client.shutdown(socket.SHUT_WR)
        received = b""
        for _ in range(1000):
            received += one.drain(one.target)
            if far.finished:
                break
            far.ready(WRITE)
            if one.wanted[0] == READ:
                near.ready(READ)
        assert len(received + one.drain(one.target)) == sent
        assert one.target.recv(1) == b""


def test_a_hangup_without_an_error_is_not_reported_again() -> None:
    with tunnelled() as one:
        near, far = one.tunnel.client_end, one.tunnel.target_end
        far.write(memoryview(b"x" * 5_000_000))
        assert one.wanted == [0, READ | WRITE]
        near.ready(READ)
        assert one.wanted == [None, READ | WRITE]
        while far.is_blocked:
            one.drain(one.target)
            far.ready(WRITE)
        assert one.wanted == [READ, READ]


@pytest.mark.parametrize("lost", ["client", "target"])
def test_a_lost_end_closes_the_other(lost: str) -> None:
    with tunnelled() as one:
        gone, left = (one.client, one.target) if lost == "client" else (one.target, one.client)
        gone.close()
        left.send(b"hello")
        side = one.tunnel.target_end if lost == "client" else one.tunnel.client_end
        side.ready(READ)
        assert [why for _, _, why in one.told] == [f"{lost}_gone"]
        assert one.wanted == [None, None]


def test_unwritten_bytes_do_not_count() -> None:
    with tunnelled() as one:
        while one.wanted == [READ, READ]:
            one.fill(one.client)
            one.tunnel.client_end.ready(READ)
        one.tunnels.close("drained")
        assert one.told == [(0, len(one.drain(one.target)), "drained")]


class Unheard:
    """A client that changes keys inside TLS and reads no answer to that; before it is written nothing can be read."""

    def recv_into(self, _buffer: memoryview, _most: int) -> int:
        raise ssl.SSLWantWriteError


def test_a_key_update_that_blocks_is_not_reported_again() -> None:
    with tunnelled() as one:
        far = one.tunnel.target_end
        near = one.tunnel.client_end = far.other = TlsTunnelEnd(one.tunnel, one.near)
        near.other, near.events = far, READ
        near.socket = Unheard()
        near.ready(READ)
        assert one.wanted == [WRITE, READ]
        near.socket = one.near
        near.ready(WRITE)
        assert one.wanted == [READ, READ]
        one.client.send(b"hello")
        near.ready(READ)
        assert one.target.recv(100) == b"hello"
        # Where something waits to be written at the other side, nothing is to be read here.
        near.socket = Unheard()
        near.ready(READ)
        near.socket = one.near
        one.fill(far.socket)
        far.write(memoryview(b"x"))
        near.ready(WRITE)
        assert one.wanted == [0, READ | WRITE]


class Shutdown(socket.socket):
    """A client inside TLS that is sent close_notify: the next read is for the peer's, and comes to `outcome`."""

    outcome: Exception | None

    def unwrap(self) -> None:
        if self.outcome is not None:
            raise self.outcome


@pytest.mark.parametrize(
    ("outcome", "goes_on"),
    [
        (ssl.SSLWantReadError(), True),  # nothing has come yet, as nearly always
        (ssl.SSLWantWriteError(), True),
        (None, False),  # its own close_notify was there
        (ssl.SSLError(1, "application data after close notify"), False),  # a record that is lost now
        (ConnectionResetError(), True),  # of which the poll tells
    ],
    ids=repr,
)
def test_the_targets_end_is_passed_on_inside_tls(outcome: Exception | None, goes_on: bool) -> None:
    with tunnelled() as one:
        far = one.tunnel.target_end
        near = one.tunnel.client_end = far.other = TlsTunnelEnd(one.tunnel, one.near)
        near.other, near.events = far, READ
        near.socket = closing = Shutdown()
        closing.outcome = outcome
        one.target.shutdown(socket.SHUT_WR)
        far.ready(READ)
        assert one.told == ([] if goes_on else [(0, 0, "ended")])
        assert one.wanted == ([READ, 0] if goes_on else [None, None])
        near.socket = one.near
        closing.close()
        if not goes_on:
            one.near.close()  # in its place the other one was closed
