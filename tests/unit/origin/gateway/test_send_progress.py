import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from headgate.origin.gateway.flow_control import send_progress


class Transport(asyncio.Transport):
    """Stands for a transport with so many bytes in its buffer."""

    def __init__(self, sock: socket.socket | None, waiting: int) -> None:
        super().__init__({"socket": sock})
        self.waiting = waiting

    def get_write_buffer_size(self) -> int:
        return self.waiting


def test_the_number_changes_as_the_peer_takes_what_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client.connect(listening.getsockname())
        server, _ = listening.accept()
        with server:
            assert send_progress(Transport(server, 0)) is None
            server.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    server.send(bytes(65_536))
            before = send_progress(Transport(server, 0))
            assert before is not None
            received = 0
            while received < 500_000:
                received += len(client.recv(65_536))
            after = send_progress(Transport(server, 0))
            assert after is None or after > before


@pytest.mark.parametrize("waiting", [0, 7])
def test_without_a_tcp_socket_it_is_the_size_of_the_buffer(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = waiting or None
    assert send_progress(Transport(None, waiting)) == expected
    pair = socket.socketpair()
    with pair[0], pair[1]:
        assert send_progress(Transport(pair[0], waiting)) == expected

    class Broken(socket.socket):
        def getsockopt(self, *_: Any) -> Any:
            raise OSError("not connected")

    with Broken() as broken:
        assert send_progress(Transport(broken, waiting)) == expected
