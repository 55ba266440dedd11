"""The lines in which HAProxy reports requests."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Accounting
from headgate.origin.sidecar import haproxy_accounting
from headgate.origin.sidecar.haproxy_accounting import MAX_LINE_SIZE, AccountingReader
from headgate.release import Status

LINES = b"1700000000123 -1700000000123 192.0.2.7\n1700000000124 2500 2001%3Adb8%3A%3A%2F64\n"
VERDICTS = [
    Accounting("api", Status.ACCEPTED, b"192.0.2.7", 1_700_000_000.123, 1_700_000_000.123),
    Accounting("api", Status.REJECTED, b"2001:db8::/64", 1_700_000_000.124, 1_700_000_002.624),
]


class Transport(asyncio.Transport):
    """Remembers whether it was aborted."""

    aborted = False

    def abort(self):
        self.aborted = True


class Connection:
    """A connection to a reader that remembers verdicts."""

    def __init__(self, reader=None):
        self.verdicts = []
        self.reader = reader or AccountingReader("api", lambda *verdict: self.verdicts.append(verdict), lambda: 7.0)
        self.protocol, self.transport = self.reader(), Transport()
        self.protocol.connection_made(self.transport)

    def receive(self, *pieces):
        for piece in pieces:
            self.protocol.data_received(piece)
        return self.verdicts


@given(st.lists(st.integers(0, len(LINES)), max_size=10))
def test_lines_are_the_same_however_they_are_split(places):
    places = sorted({0, *places, len(LINES)})
    pieces = [LINES[start:end] for start, end in itertools.pairwise(places)]
    assert Connection().receive(*pieces) == [(verdict, 7.0) for verdict in VERDICTS]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"1 2",
        b"1 2 ",
        b"1 2 a b",
        b" 1 2 a",
        b"-1 2 a",
        b"1.5 2 a",
        b"1 2 a;b",
        b"1 2 \xff",
        b"1" * 16 + b" 2 a",
        b"dropped",
        b"dropped -1",
        b"\0",
    ],
)
def test_a_malformed_line_is_counted_and_the_next_is_read(line):
    connection = Connection()
    assert connection.receive(line + b"\n" + LINES) == [(verdict, 7.0) for verdict in VERDICTS]
    assert connection.reader.counters.malformed == 1
    assert not connection.transport.aborted


@given(st.binary(max_size=200))
def test_no_bytes_raise_an_error(data):
    Connection().receive(data, b"\n", data)


def test_a_line_that_never_ends_closes_the_connection():
    connection = Connection()
    connection.receive(b"1" * MAX_LINE_SIZE)
    assert not connection.transport.aborted
    connection.receive(b"1")
    assert connection.transport.aborted
    assert connection.reader.counters.malformed == 1


def test_an_identifier_of_more_than_255_bytes_is_reported_as_its_digest():
    ((verdict, _),) = Connection().receive(b"1 2 " + b"%FF" * 300 + b"\n")
    assert verdict.identifier.startswith(b"sha256:")


def test_requests_that_haproxy_dropped_are_counted():
    connection = Connection()
    assert connection.receive(b"dropped 5\ndropped 2\n") == []
    assert connection.reader.counters.haproxy_dropped == 7


def test_idle_connection_is_replaced_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(haproxy_accounting, "MAX_CONNECTIONS", 2)
    first = Connection()
    second = Connection(first.reader)
    first.receive(b"1 0 a\n")
    third = Connection(first.reader)
    assert [one.transport.aborted for one in (first, second, third)] == [False, True, False]
    second.protocol.connection_lost(None)
    counters = first.reader.counters
    assert (counters.connections, counters.dropped_connections) == (3, 1)
    first.reader.close()
    assert third.transport.aborted
