"""The table of HAProxy, and the lines in which it reports requests; `tests/e2e/test_sidecar_haproxy.py` runs it."""

import asyncio
import re
from itertools import pairwise
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.config.tree import Sidecar
from headgate.errors import ConfigurationError, WireError
from headgate.limit import Accounting, Gatekeeper
from headgate.origin import Rejections
from headgate.origin.sidecar import haproxy
from headgate.origin.sidecar.haproxy import (
    MAX_COMMAND_SIZE,
    MAX_LINE_SIZE,
    HAProxy,
    check_done,
    check_table_name,
    encode_end,
    encode_key,
    set_commands,
)
from headgate.release import Status


@given(st.binary(max_size=255))
def test_a_key_has_no_character_that_the_runtime_socket_interprets(identifier):
    key = encode_key(identifier)
    assert re.fullmatch(r"[A-Za-z0-9._~%-]*", key)
    assert unquote_to_bytes(key) == identifier


@given(now=st.integers(1_700_000_000_000, 4_000_000_000_000), left=st.integers(-86_400_000 * 30, 86_400_000 * 31))
@example(now=1_700_000_000_001, left=5)
@example(now=2**32 * 10 * 50, left=-10)
@example(now=2**32 * 10 * 50 - 10, left=10)
@example(now=2**32 * 10 * 50 - 10, left=20)
def test_what_remains_of_a_hold_is_known_modulo_the_size_of_a_value(now, left):
    """The calculation of haproxy.cfg: a hold never ends early, and at most two hundredths of a second late."""
    end = encode_end((now + left) / 1_000.0)
    assert 0 < end < 2**32
    rest = (end - now // 10 + 4398046511104) % 4294967296
    is_held = end > 0 and 0 < rest < 2147483648
    assert is_held or left <= 0
    assert not is_held or left > -20
    assert not is_held or rest * 10 <= left + 20


@given(st.dictionaries(st.binary(min_size=1, max_size=255), st.floats(0, 4e9), max_size=50))
def test_commands_of_limited_size_write_each_hold_once(holds):
    commands = list(set_commands("held", holds.items()))
    assert all(len(command) <= MAX_COMMAND_SIZE + 1 and command.endswith("\n") for command in commands)
    found = [one for command in commands for one in command.removesuffix("\n").split(";")]
    assert found == [
        f"set table held key {encode_key(name)} data.gpt0 {encode_end(end)}" for name, end in holds.items()
    ]


def test_answers_of_haproxy_are_checked():
    check_done("\n\n\n")
    with pytest.raises(WireError, match=r"did not change the table: 'Permission denied'"):
        check_done("\nPermission denied\n\n")


@pytest.mark.parametrize("name", ["", "a b", "a;b", "a\nb", "#1", "a,b", "a'b", "a\\b", "ä"])
def test_a_name_that_is_not_a_plain_word_is_refused(name):
    with pytest.raises(ConfigurationError, match="invalid table"):
        check_table_name(name)


LINES = b"1700000000123 0 192.0.2.7\n1700000000124 2500 2001%3Adb8%3A%3A%2F64\n"
VERDICTS = [
    Accounting("api", Status.ACCEPTED, b"192.0.2.7", 1_700_000_000.123, 1_700_000_000.123),
    Accounting("api", Status.REJECTED, b"2001:db8::/64", 1_700_000_000.124, 1_700_000_002.624),
]


class Transport(asyncio.Transport):
    aborted = False

    def abort(self):
        self.aborted = True


class Connection:
    """A connection to a data plane that remembers verdicts."""

    def __init__(self, plane=None):
        self.verdicts = []
        self.plane = plane or HAProxy(
            gatekeeper=Gatekeeper(lambda verdict, _now: self.verdicts.append(verdict)),
            rejections=Rejections(),
            settings=Sidecar(haproxy="s"),
            domains=("api",),
            log=print,
            clock=lambda: 1_700_000_000.2,
        )
        self.protocol, self.transport = haproxy._Connection(self.plane), Transport()
        self.protocol.connection_made(self.transport)

    def receive(self, *pieces):
        for piece in pieces:
            self.protocol.data_received(piece)
        return self.verdicts


@given(st.lists(st.integers(0, len(LINES)), max_size=10))
def test_lines_are_the_same_however_they_are_split(places):
    places = sorted({0, *places, len(LINES)})
    assert Connection().receive(*(LINES[start:end] for start, end in pairwise(places))) == VERDICTS


def test_a_malformed_line_is_counted_and_the_next_is_read():
    numbers = b"1 2", b"1 2 ", b"1 2 a b", b" 1 2 a", b"-1 2 a", b"1.5 2 a", b"1 2 a;b", b"1 2 \xff"
    for line in (b"", *numbers, b"1" * 16 + b" 2 a", b"dropped", b"dropped -1", b"\0"):
        connection = Connection()
        assert connection.receive(line + b"\n" + LINES) == VERDICTS, line
        assert connection.plane.totals.failed["malformed"] == 1, line
        assert not connection.transport.aborted


def test_a_line_that_never_ends_closes_the_connection():
    connection = Connection()
    connection.receive(b"1" * MAX_LINE_SIZE)
    assert not connection.transport.aborted
    connection.receive(b"1")
    assert connection.transport.aborted
    assert connection.plane.totals.failed["malformed"] == 1


def test_an_identifier_of_more_than_255_bytes_is_reported_as_its_digest():
    (verdict,) = Connection().receive(b"1 2 " + b"%FF" * 300 + b"\n")
    assert verdict.identifier.startswith(b"sha256:")


def test_requests_that_haproxy_dropped_are_counted():
    connection = Connection()
    assert connection.receive(b"dropped 5\ndropped 2\n") == []
    assert connection.plane.totals.dropped == 7


def test_a_connection_beyond_the_maximum_is_refused(monkeypatch):
    monkeypatch.setattr(HAProxy, "max_connections", 1)
    first = Connection()
    second = Connection(first.plane)
    assert [one.transport.aborted for one in (first, second)] == [False, True]
    second.protocol.connection_lost(None)
    first.protocol.connection_lost(None)
    third = Connection(first.plane)
    assert not third.transport.aborted
    assert (first.plane.totals.connections, first.plane.totals.failed["refused"]) == (3, 1)
