"""One side of a tunnel: what is read, what waits, and what is waited for then."""

import os
import socket
import ssl

import pytest

from headgate.agent.proxy.poll import READ, WRITE
from headgate.agent.proxy.side import TlsSide, reset
from headgate.agent.proxy.splicing import Pipes
from tests.unit.agent.proxy.tunnel import tunnelled

SPLICES = hasattr(os, "splice")


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


@pytest.mark.parametrize("pipes", [0, 32])
def test_what_is_not_taken_is_waited_for_and_its_source_not_read(pipes: int) -> None:
    with tunnelled() as one:
        one.relay.pipes = Pipes(pipes)
        near, far = one.tunnel.near, one.tunnel.far
        far.count = 1 << 16
        sent = 0
        while one.wanted == [READ, READ]:
            sent += one.fill(one.client)
            near.ready(READ)
        assert one.wanted == [0, READ | WRITE]
        assert far.waits
        assert bool(one.relay.stuck) == bool(pipes and SPLICES)
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


@pytest.mark.skipif(not SPLICES, reason="this system does not splice")
def test_the_first_bytes_are_copied_and_the_rest_is_spliced() -> None:
    with tunnelled() as one:
        while one.tunnel.far.count < 1 << 16:
            assert one.relay.pipes.made == 0
            one.client.send(b"x" * 10_000)
            one.tunnel.near.ready(READ)
            one.drain(one.target)
        one.client.send(b"hello")
        one.tunnel.near.ready(READ)
        assert one.target.recv(100) == b"hello"
        assert one.relay.pipes.made == 1
        one.target.send(b"the other direction is copied still")
        one.tunnel.far.ready(READ)
        assert one.relay.pipes.made == 1
        pipe = one.relay.pipes.borrow()
        assert pipe is not None
        one.relay.pipes.give_back(pipe)
        assert one.relay.pipes.made == 1, "it had been given back"


@pytest.mark.skipif(not SPLICES, reason="this system does not splice")
def test_where_these_sockets_do_not_splice_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object, **__: object) -> int:
        raise OSError(22, "invalid argument")

    with tunnelled() as one:
        monkeypatch.setattr(os, "splice", cannot)
        one.tunnel.far.count = 1 << 20
        one.client.send(b"hello")
        one.tunnel.near.ready(READ)
        assert one.target.recv(100) == b"hello"
        assert one.relay.pipes.borrow() is None


@pytest.mark.skipif(not SPLICES, reason="this system does not splice")
def test_a_pipe_that_does_not_move_is_read_out() -> None:
    with tunnelled() as one:
        one.tunnel.far.count = 1 << 16
        sent = 0
        while one.wanted == [READ, READ]:
            sent += one.fill(one.client)
            one.tunnel.near.ready(READ)
        assert one.relay.stuck == {one.tunnel.far}
        one.relay.look_after()
        assert one.relay.stuck, "it has only just come"
        one.relay.look_after()
        assert not one.relay.stuck
        assert 0 < one.relay.waiting <= 1 << 20
        received = 0
        while received < sent:
            received += len(one.drain(one.target))
            one.tunnel.far.ready(WRITE)
            one.tunnel.near.ready(READ)
        assert received == sent


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


def test_a_reset_closes_what_is_closed_already() -> None:
    one, other = socket.socketpair()
    other.close()
    one.close()
    reset(one)
