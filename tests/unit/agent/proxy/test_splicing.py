"""Pipes: lent for a move, and given back."""

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from headgate.agent.proxy.splicing import Pipe, Pipes

pytestmark = pytest.mark.skipif(not hasattr(os, "splice"), reason="this system does not splice")


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    pipes = Pipes(2)
    yield pipes
    pipes.close()


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    made = [*socket.socketpair(), *socket.socketpair()]
    for sock in made:
        sock.settimeout(0)
    yield made
    for sock in made:
        sock.close()


def borrowed(pipes: Pipes) -> Pipe:
    pipe = pipes.borrow()
    assert pipe is not None
    return pipe


def test_bytes_go_through_in_order(pipes: Pipes, sockets: list[socket.socket]) -> None:
    client, near, far, target = sockets
    pipe = borrowed(pipes)
    for word in (b"hello ", b"world"):
        client.send(word)
        assert pipe.fill(near.fileno(), 100) == len(word)
    assert pipe.inside == 11
    assert pipe.pour(far.fileno()) == 11
    assert pipe.inside == 0
    assert target.recv(100) == b"hello world"
    pipes.give_back(pipe)


def test_no_more_is_taken_than_asked_for(pipes: Pipes, sockets: list[socket.socket]) -> None:
    client, near, _, _ = sockets
    pipe = borrowed(pipes)
    client.send(b"hello world")
    assert pipe.fill(near.fileno(), 5) == 5
    assert near.recv(100) == b" world"
    assert pipe.read_out() == b"hello"
    assert pipe.read_out() == b""
    pipes.give_back(pipe)


def test_nothing_to_take_and_an_end_are_two_things(pipes: Pipes, sockets: list[socket.socket]) -> None:
    client, near, _, _ = sockets
    pipe = borrowed(pipes)
    with pytest.raises(BlockingIOError):
        pipe.fill(near.fileno(), 100)
    client.shutdown(socket.SHUT_WR)
    assert pipe.fill(near.fileno(), 100) == 0
    pipes.give_back(pipe)


def test_what_does_not_move_is_noticed(pipes: Pipes, sockets: list[socket.socket]) -> None:
    client, near, far, _ = sockets
    pipe = borrowed(pipes)
    client.send(b"hello")
    pipe.fill(near.fileno(), 100)
    assert pipe.has_moved()
    assert not pipe.has_moved()
    pipe.pour(far.fileno())
    assert pipe.has_moved()
    pipes.give_back(pipe)


def test_there_are_only_so_many(pipes: Pipes) -> None:
    lent = [borrowed(pipes), borrowed(pipes)]
    assert pipes.borrow() is None
    pipes.give_back(lent[0])
    assert pipes.borrow() is lent[0]
    for pipe in lent:
        pipes.give_back(pipe)
    assert pipes.made == 2


def test_a_pipe_with_something_inside_is_not_lent_again(pipes: Pipes, sockets: list[socket.socket]) -> None:
    client, near, _, _ = sockets
    pipe = borrowed(pipes)
    client.send(b"secret")
    pipe.fill(near.fileno(), 100)
    pipes.give_back(pipe)
    assert pipes.made == 0
    another = borrowed(pipes)
    assert another.inside == 0
    assert another.read_out() == b""
    pipes.give_back(another)


def test_none_is_lent_once_sockets_cannot_be_spliced(pipes: Pipes) -> None:
    pipes.give_back(borrowed(pipes))
    assert not pipes.cannot(ConnectionResetError(errno.ECONNRESET, "reset"))
    assert pipes.made == 1
    assert pipes.cannot(OSError(errno.EINVAL, "invalid"))
    assert pipes.borrow() is None
    assert pipes.made == 0


def test_none_is_lent_while_there_are_no_descriptors(pipes: Pipes, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe2", fail)
        assert pipes.borrow() is None
    pipes.give_back(borrowed(pipes))


def test_small_pipes_are_no_good(pipes: Pipes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.agent.proxy.splicing._SMALLEST", 1 << 30)
    assert pipes.borrow() is None
    assert pipes.made == 0


def test_where_nothing_splices_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "splice")
    assert Pipes().borrow() is None
