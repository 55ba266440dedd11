"""The bounds of connections on which nginx asks."""

import asyncio

import pytest

from headgate.origin.sidecar import auth_request_connections
from headgate.origin.sidecar.auth_request_connections import Connection, ConnectionTable

HEAD = b"GET / HTTP/1.1\r\n\r\n"


class Transport:
    """Remembers what is written; closes like a transport of an event loop: later."""

    def __init__(self):
        self.written = []
        self.is_aborted = False

    def write(self, data):
        self.written.append(data)

    def abort(self):
        self.is_aborted = True


def connect(table, answer=lambda head, connection: b"answer"):
    connection = Connection(table, answer)
    connection.connection_made(Transport())
    return connection


def is_open(connection):
    return not connection._transport.is_aborted


def test_the_connection_that_is_idle_for_longest_makes_room():
    table = ConnectionTable(3)
    first, second, third = (connect(table) for _ in range(3))
    first.data_received(HEAD)
    fourth = connect(table)
    assert [is_open(one) for one in (first, second, third, fourth)] == [True, False, True, True]
    assert (len(table), table.opened, table.dropped) == (3, 4, 1)
    second.connection_lost(None)
    assert len(table) == 3


def test_a_connection_that_waits_is_not_closed_for_another():
    table = ConnectionTable(2)
    waiting = [connect(table, lambda head, connection: None) for _ in range(2)]
    for connection in waiting:
        connection.data_received(HEAD)
    assert not is_open(connect(table))
    assert all(map(is_open, waiting))
    waiting[0].send(b"late")
    assert waiting[0]._transport.written == [b"late"]
    assert is_open(connect(table))
    assert not is_open(waiting[0])


def test_bytes_while_the_answer_is_awaited_close_the_connection():
    for data in (HEAD, b"x"):
        lost = []
        table = ConnectionTable(2)
        connection = connect(table, lambda head, connection: None)
        connection.data_received(HEAD)
        connection.on_lost = lambda lost=lost: lost.append(1)
        connection.data_received(data)
        assert not is_open(connection)
        assert lost == []
        connection.connection_lost(None)
        assert lost == [1]
        assert len(table) == 0


def test_a_peer_that_does_not_read_is_closed():
    table = ConnectionTable(2)
    connection = connect(table)
    connection.pause_writing()
    assert not is_open(connection)
    assert table.dropped == 1


def test_a_head_must_be_complete_in_time(monkeypatch):
    monkeypatch.setattr(auth_request_connections, "HEAD_TIMEOUT", 0.01)

    async def check():
        table = ConnectionTable(2)
        slow, fast = connect(table), connect(table)
        slow.data_received(HEAD[:-1])
        fast.data_received(HEAD[:-1])
        fast.data_received(HEAD[-1:])
        for _ in range(1000):
            if not is_open(slow):
                break
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert is_open(fast)
        assert table.dropped == 1
        fast.data_received(b"x")
        fast.connection_lost(None)
        await asyncio.sleep(0.02)
        assert table.dropped == 1

    asyncio.run(check())


def test_bytes_after_an_abort_change_nothing():
    """A transport may deliver what it has read before it reports the loss."""
    table = ConnectionTable(2)
    connection = connect(table)
    table.drop(connection)
    connection.data_received(HEAD)
    connection.data_received(b"x")
    assert connection._transport.written == []
    assert table.dropped == 1


@pytest.mark.parametrize("waits", [False, True])
def test_close_closes_all(waits):
    table = ConnectionTable(3)
    connections = [connect(table, lambda head, connection: None if waits else b"") for _ in range(3)]
    for connection in connections:
        connection.data_received(HEAD)
    table.close()
    assert not any(map(is_open, connections))
    assert len(table) == 0


def test_an_answer_for_a_closed_connection_is_dropped():
    """A release may come between the close of a connection and the report of its loss."""
    table = ConnectionTable(2)
    connection = connect(table, lambda head, connection: None)
    connection.data_received(HEAD)
    table.drop(connection)
    connection.send(b"late")
    assert connection._transport.written == []
    assert len(table) == 0
