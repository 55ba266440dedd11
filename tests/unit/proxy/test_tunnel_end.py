"""One side of a tunnel: what is read, what waits, and what is waited for then."""

import socket
import ssl

import pytest

from headgate.proxy.net.poller import READ, WRITE
from headgate.proxy.tunnel_end import TlsSide, reset
from tests.unit.proxy.tunnel import tunnelled


def test_bytes_pass() -> None:
    with tunnelled() as one:
        one.client.send(b"hello")
        one.tunnel.near.ready(READ)
        assert one.target.recv(100) == b"hello"
        one.target.send(b"world!")
        one.tunnel.far.ready(READ)
        assert one.client.recv(100) == b"world!"
        assert one.wanted == [READ, READ]
    assert one.told == [(6, 5, "drained")]


def test_an_event_without_cause_does_nothing() -> None:
    with tunnelled() as one:
        one.tunnel.near.ready(READ | WRITE)
        assert one.wanted == [READ, READ]


def test_what_is_not_taken_is_waited_for_and_its_source_not_read() -> None:
    with tunnelled() as one:
        near, far = one.tunnel.near, one.tunnel.far
        sent = 0
        while one.wanted == [READ, READ]:
            sent += one.fill(one.client)
            near.ready(READ)
        assert one.wanted == [0, READ | WRITE]
        assert far.waits
        received = len(one.drain(one.target))
        while far.waits:
            far.ready(WRITE)
            received += len(one.drain(one.target))
        assert one.wanted == [READ, READ]
        while received < sent:
            near.ready(READ)
            far.ready(WRITE)
            received += len(one.drain(one.target))
        assert received == sent
        assert one.relay.waiting == 0


def test_an_end_is_passed_on_and_the_other_direction_goes_on() -> None:
    with tunnelled() as one:
        near, far = one.tunnel.near, one.tunnel.far
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


def test_an_end_comes_behind_what_waits() -> None:
    with tunnelled() as one:
        near, far = one.tunnel.near, one.tunnel.far
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


def test_what_cannot_be_declined_and_is_no_error_is_not_told_of_for_ever() -> None:
    with tunnelled() as one:
        near, far = one.tunnel.near, one.tunnel.far
        far.give(memoryview(b"x" * 5_000_000))
        assert one.wanted == [0, READ | WRITE]
        near.ready(READ)
        assert one.wanted == [None, READ | WRITE]
        while far.waits:
            one.drain(one.target)
            far.ready(WRITE)
        assert one.wanted == [READ, READ]


@pytest.mark.parametrize("lost", ["client", "target"])
def test_a_lost_side_takes_the_other_with_it(lost: str) -> None:
    with tunnelled() as one:
        gone, left = (one.client, one.target) if lost == "client" else (one.target, one.client)
        gone.close()
        left.send(b"hello")
        side = one.tunnel.far if lost == "client" else one.tunnel.near
        side.ready(READ)
        assert [why for _, _, why in one.told] == [f"{lost}_gone"]
        assert one.wanted == [None, None]


def test_what_was_never_written_is_not_counted() -> None:
    with tunnelled() as one:
        while one.wanted == [READ, READ]:
            one.fill(one.client)
            one.tunnel.near.ready(READ)
        one.relay.close("drained")
        assert one.told == [(0, len(one.drain(one.target)), "drained")]


class Unheard:
    """A client that changes keys inside TLS and reads no answer to that; before it is written nothing can be read."""

    def recv_into(self, _buffer: memoryview, _most: int) -> int:
        raise ssl.SSLWantWriteError


def test_a_client_that_reads_no_answer_to_its_new_keys_is_not_told_of_for_ever() -> None:
    with tunnelled() as one:
        far = one.tunnel.far
        near = one.tunnel.near = far.other = TlsSide(one.tunnel, one.near)
        near.other, near.wanted = far, READ
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
        far.give(memoryview(b"x"))
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
def test_a_client_inside_tls_is_told_that_its_target_has_ended(outcome: Exception | None, goes_on: bool) -> None:
    with tunnelled() as one:
        far = one.tunnel.far
        near = one.tunnel.near = far.other = TlsSide(one.tunnel, one.near)
        near.other, near.wanted = far, READ
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


def test_a_reset_closes_what_is_closed_already() -> None:
    one, other = socket.socketpair()
    other.close()
    one.close()
    reset(one)
