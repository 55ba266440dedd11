"""What sockets ask of TCP."""

import socket

import pytest

from headgate.proxy.net.sockets import receive_buffer


def test_a_size_that_may_be_had_is_given() -> None:
    given = receive_buffer()
    with socket.socket() as sock:
        usual = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        if given:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, given)
            assert given <= sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 8 << 20
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 << 20)
            assert usual <= sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < 2 << 20


def test_where_it_may_not_be_had_it_is_left_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stingy(socket.socket):
        def getsockopt(self, *_: object) -> int:
            return 425_984

    monkeypatch.setattr(socket, "socket", Stingy)
    assert receive_buffer() == 0
