import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from headgate.origin.gateway.flow_control import FlowControl, send_progress
from tests.unit.origin.gateway.stub import StubTransport


def test_reading_is_paused_for_either_reason() -> None:
    transport = StubTransport()
    flow = FlowControl(transport)
    flow.set_buffer_full(True)
    assert not transport.reading
    flow.set_upstream_slow(True)
    flow.set_buffer_full(False)
    assert not transport.reading
    flow.set_upstream_slow(False)
    assert transport.reading
    flow.set_upstream_slow(True)
    flow.set_buffer_full(True)
    flow.release()
    assert transport.reading
    assert not flow.upstream_slow


def test_a_closing_transport_is_left_alone() -> None:
    transport = StubTransport()
    transport.close()
    FlowControl(transport).set_buffer_full(True)
    assert transport.reading


def test_the_client_reads_when_its_progress_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = iter([5, 5, 7, None, None])
    monkeypatch.setattr("headgate.origin.gateway.flow_control.send_progress", lambda _: next(progress))
    flow = FlowControl(StubTransport())
    assert [flow.client_reads() for _ in range(5)] == [True, False, True, False, False]


class Transport(asyncio.Transport):
    """Stands for a transport with so many bytes in its buffer."""

    def __init__(self, sock: socket.socket | None, waiting: int) -> None:
        super().__init__({"socket": sock})
        self.waiting = waiting

    def get_write_buffer_size(self) -> int:
        return self.waiting


def test_progress_changes_as_the_peer_acknowledges_bytes() -> None:
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
def test_progress_without_a_tcp_socket_is_the_size_of_the_buffer(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
