"""What a connection of a client does, driven by hand over a transport without a socket."""

import pytest

from headgate.origin.gateway.client_connection import ClientConnection
from tests.unit.origin.gateway.stub import StubTransport, make_context


@pytest.mark.parametrize(
    ("sent", "response"),
    [
        pytest.param(b"", b"", id="nothing of the next request"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"HTTP/1.1 408 ", id="a part of its head"),
    ],
)
def test_reading_an_earlier_response_gives_no_more_time_for_a_head(
    sent: bytes, response: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client takes bytes of that response all the while: an idle connection stays open for it."""
    acknowledged = iter(range(100))
    monkeypatch.setattr("headgate.origin.gateway.client_connection.send_progress", lambda _: next(acknowledged))
    context, transport = make_context(), StubTransport(half_open=False)
    connection = ClientConnection(context)
    connection.connection_made(transport)
    if sent:
        connection.data_received(sent)
    context.now = connection.deadline
    connection.expire()
    assert transport.written[: len(response) or None] == response
    assert not transport.aborted
    assert (connection.deadline == context.now + context.timeouts.idle) == (not sent)
