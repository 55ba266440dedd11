"""What a connection does at its deadline, by the gateway's own clock."""

import asyncio

import pytest

from headgate.limit import Domain, Gatekeeper
from headgate.origin import Rejections, Route, Routes, client_address
from headgate.origin.gateway import Gateway
from headgate.origin.gateway.connection import AgentConnection


class Transport(asyncio.Transport):
    """A transport without a socket, that keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 50_000)})
        self.written = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.aborted

    def can_write_eof(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        pytest.param(b"", b"", id="nothing of the next request"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"HTTP/1.1 408 ", id="a part of its head"),
    ],
)
def test_reading_an_earlier_response_gives_no_more_time_for_a_head(
    sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client takes bytes of that response all the while: an idle connection stays open for it."""
    acknowledged = iter(range(100))
    monkeypatch.setattr("headgate.origin.gateway.connection.sending_progress", lambda _: next(acknowledged))
    domain = Domain("default")
    gateway = Gateway(
        origin="http://127.0.0.1:1",
        gatekeeper=Gatekeeper.embedded([domain]),
        identify=client_address(),
        routes=Routes([Route("default")]),
        reject=Rejections([domain]),
    )
    transport = Transport()
    connection = AgentConnection(gateway)
    connection.connection_made(transport)
    if sent:
        connection.data_received(sent)
    gateway.pool.now = connection.deadline
    connection.expire()
    assert transport.written[: len(answer) or None] == answer
    assert not transport.aborted
    assert (connection.deadline == gateway.pool.now + gateway.timeouts.idle) == (not sent)
