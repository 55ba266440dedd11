"""What sockets ask of TCP."""

import socket

import pytest

from headgate.agent.proxy.transport import hurry_on_loopback, receive_buffer


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


def control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="there is no choice here")
@pytest.mark.parametrize(
    ("host", "hurries"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("192.0.2.1", False), ("::", False), ("0.0.0.0", False)],
)
def test_only_this_machine_is_sent_to_without_pacing(host: str, hurries: bool) -> None:
    with socket.socket() as sock:
        usual = control(sock)
        hurry_on_loopback(sock, host)
        assert control(sock) == (b"reno" if hurries else usual)


def test_where_there_is_no_choice_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_CONGESTION", raising=False)
    with socket.socket() as sock:
        hurry_on_loopback(sock, "127.0.0.1")
