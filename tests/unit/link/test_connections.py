"""Handshakes over TCP, in one process: who is admitted, what is counted, logged, and connected again."""

import socket
import time
from contextlib import suppress

import pytest
import zmq

from headgate.errors import LinkError
from headgate.link import connections
from headgate.link.connections import BoundConnections, OutgoingConnections, Warnings
from headgate.link.curve import AllowedKey, ClientKeys, ServerKeys, new_key_pair
from headgate.link.gatekeeper import GatekeeperCounters
from headgate.link.master import MasterCounters
from headgate.link.sockets import bind_pair, connect_pair, open_socket
from headgate.release import NEVER
from tests.unit.link import peers
from tests.unit.link.peers import PATIENCE

SERVER, ALLOWED, OTHER = new_key_pair(), new_key_pair(), new_key_pair()
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def pair_of(context, kinds):
    return [open_socket(context, kind, queue=10, largest=1_000) for kind in kinds]


class Server:
    """Two bound sockets, as a master has them, and a context for its peers."""

    def __init__(self, context, keys=None):
        self.counters, self.lines = MasterCounters(), []
        self.sockets = pair_of(context, (zmq.SUB, zmq.XPUB))
        self.sockets[0].subscribe(b"")
        self.connections = BoundConnections(self.sockets, self.counters, self.lines.append)
        if keys is not None:
            self.connections.authenticate(keys.allowed)
        self.address = bind_pair(*self.sockets, "tcp://127.0.0.1:0", keys).accounting
        self.port = int(self.address.rpartition(":")[2])

    def counts(self):
        return self.counters.refused_keys, self.counters.failed_handshakes


class Client:
    """Two sockets connected to a server, as a gatekeeper has them."""

    def __init__(self, context, address, keys=None):
        """Without an address, the sockets are not connected."""
        self.counters, self.lines = GatekeeperCounters(), []
        self.sockets = pair_of(context, (zmq.XPUB, zmq.SUB))
        self.sockets[1].subscribe(b"api\0")
        self.connections = OutgoingConnections(self.sockets, keys, self.counters, self.lines.append)
        if address:
            self.connections.endpoints = connect_pair(*self.sockets, address, keys)

    @property
    def is_connected(self):
        return bool(self.sockets[0].poll(0))


def until(condition, *watched):
    """Let the watched connections work until `condition` returns true."""

    def turn():
        for one in watched:
            one.connections.turn()
            for each in one.sockets:  # a socket sends its subscriptions when it is used
                each.poll(0)
        time.sleep(0.002)

    peers.until(condition, turn)


@pytest.fixture
def started(context):
    """Return a function that makes a `Server` or a `Client`, which is closed at the end."""
    made, others = [], zmq.Context()

    def start(kind, *arguments):
        made.append(kind(context if kind is Server else others, *arguments))
        return made[-1]

    yield start
    for one in made:
        one.connections.close()
    others.destroy(linger=0)


@pytest.fixture
def soon(monkeypatch):
    """Connect again at once where libzmq does not, so that a test need not wait for it."""
    monkeypatch.setattr(connections, "_RECONNECT_DELAY", 0.05)


KEYS = ServerKeys(SERVER, {ALLOWED.public: AllowedKey("gate")})


def test_allowed_key_is_admitted_and_the_messages_arrive(started):
    server = started(Server, KEYS)
    client = started(Client, server.address, ClientKeys(ALLOWED, SERVER.public))
    until(lambda: client.is_connected, server, client)
    client.sockets[0].send_multipart([b"api\0", b"message"])
    assert server.sockets[0].poll(PATIENCE * 1_000)
    assert server.sockets[0].recv_multipart() == [b"api\0", b"message"]
    assert (server.counts(), server.lines) == ((0, 0), [])
    assert (client.counters.failed_handshakes, client.lines) == (0, [])


def test_key_that_is_not_allowed_is_refused_counted_and_named(started):
    server = started(Server, KEYS)
    client = started(Client, server.address, ClientKeys(OTHER, SERVER.public))
    until(lambda: server.counts() == (2, 0) and client.counters.failed_handshakes == 2, server, client)
    assert server.lines == [
        f"refused a peer at 127.0.0.1: its public key {OTHER.public.decode()} is not in the list of allowed keys"
    ]
    reason = f"the master refuses the public key {OTHER.public.decode()}; add it to the curve_allow file of the master"
    assert client.lines == [f"{server.address}: {reason}. Meanwhile, its holds do not arrive here"]
    assert not client.is_connected


def test_peer_without_curve_is_refused_and_both_sides_say_so(started):
    server = started(Server, KEYS)
    client = started(Client, server.address)
    until(lambda: server.counts() >= (0, 2) and server.lines and client.lines, server, client)
    assert ["does not use CURVE" in line for line in server.lines] == [True]
    # Which of two lines comes first, and whether both do, depends on what ends a connection.
    assert all("curve_key and curve_server here" in line for line in client.lines)
    assert not client.is_connected


def test_peer_with_curve_at_a_server_without_keys_says_so(started):
    server = started(Server)
    client = started(Client, server.address, ClientKeys(ALLOWED, SERVER.public))
    until(lambda: server.counts() >= (0, 2) and client.lines, server, client)
    assert server.lines == []  # without keys, handshakes of other programs are counted only
    # On a busy machine the connection may have ended before its greeting is read; then the line has another beginning.
    assert "does not use CURVE" in client.lines[0]


def test_a_handshake_that_fails_for_another_reason_names_no_mechanism(started):
    client = started(Client, "")
    assert client.connections._reason(connections._PROTOCOL, connections._MISMATCH + 1, 0.0) == ""
    assert client.connections._reason(connections._DISCONNECTED, connections._MISMATCH, 0.0) == ""


def test_wrong_key_of_the_server_is_reported_after_several_failures(started):
    server = started(Server, KEYS)
    client = started(Client, server.address, ClientKeys(ALLOWED, OTHER.public))
    until(lambda: client.lines and server.lines, server, client)
    assert client.counters.failed_handshakes >= 4
    assert "ends each handshake: curve_server is not its public key" in client.lines[0]
    assert server.counters.failed_handshakes >= 3
    assert len(server.lines) == 1


def test_no_key_is_admitted_while_no_authenticator_answers(started):
    server = started(Server, KEYS)
    server.connections._requests.close()
    server.connections._requests = None
    client = started(Client, server.address, ClientKeys(ALLOWED, SERVER.public))
    until(lambda: server.counts() >= (0, 2) or client.is_connected, server, client)
    assert server.counts() >= (0, 2)
    assert not client.is_connected


def test_a_key_added_later_is_admitted_without_a_restart_of_either_side(started, soon):
    """After a refused key, libzmq does not connect again."""
    server = started(Server, KEYS)
    client = started(Client, server.address, ClientKeys(OTHER, SERVER.public))
    until(lambda: client.lines, server, client)
    server.connections.authenticate({OTHER.public: AllowedKey()})
    until(lambda: client.is_connected, server, client)
    assert len(client.lines) == 1


def test_warnings_of_a_kind_are_hourly_with_a_count_and_kinds_that_peers_choose_are_bounded(monkeypatch):
    lines, now = [], [1_000.0]
    monkeypatch.setattr(connections.time, "monotonic", lambda: now[0])
    warnings = Warnings(lines.append)
    for kind in ("a", "b") * 3:
        warnings.add(kind, kind)
    assert lines == ["a", "b"]
    now[0] += 3_599.0
    warnings.add("a", "a")
    now[0] += 1.0
    warnings.add("a", "a")
    assert lines[2:] == ["a (3 more since the last such line)"]
    for number in range(10_000):
        warnings.add(str(number), "random")
    assert len(lines) < 70
    assert len(warnings._due) + len(warnings._left_out) < 140


def test_single_connection_that_a_master_ends_is_not_reported(started):
    client = started(Client, "")
    for number in range(1, 5):
        client.connections._on_event(number % 2, int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL), 0, 0.0)
        assert (len(client.lines), client.counters.failed_handshakes) == (number // 4, number)


def test_a_master_that_does_not_answer_is_called_hung_and_no_failed_handshake_is_counted(started, monkeypatch):
    """Its system accepts the connection; libzmq gives up after 10 s."""
    client, failed = started(Client, ""), int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
    for number in range(6):
        client.connections._on_event(number % 2, int(zmq.EVENT_CONNECTED), 0, 20.0 * number)
        client.connections._on_event(number % 2, failed, 0, 20.0 * number + 10.0)
    assert client.counters.failed_handshakes == 0
    assert len(client.lines) == 1
    assert "accepts connections and does not answer" in client.lines[0]
    assert client.connections.has_reported_failure


def test_client_reports_failures_again_after_a_success(started, soon):
    server = started(Server, KEYS)
    client = started(Client, server.address, ClientKeys(OTHER, SERVER.public))
    until(lambda: client.counters.failed_handshakes >= 6, server, client)
    assert len(client.lines) == 1
    client.connections._on_event(0, int(zmq.EVENT_HANDSHAKE_SUCCEEDED), 0, 0.0)
    until(lambda: len(client.lines) == 2, server, client)


@pytest.mark.parametrize(
    "sent",
    [GREETING.replace(b"NULL\0", b"CURVE"), GREETING + b"\x04\x05\x04NONE" * 10],
    ids=["another mechanism", "malformed command"],
)
def test_client_connects_again_after_an_error_after_which_libzmq_does_not(started, soon, sent):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        client = started(Client, f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        first, _ = listener.accept()
        first.sendall(sent)
        listener.settimeout(0.0)
        again = []

        def is_accepted():
            try:
                again.append(listener.accept()[0])
            except BlockingIOError:
                return False
            return True

        until(is_accepted, client)
        for one in (first, *again):
            one.close()


def test_next_turn_is_due_when_a_connection_is_to_be_made_again(started):
    client = started(Client, "")
    client.connections._on_event(0, int(zmq.EVENT_DISCONNECTED), 0, time.monotonic())
    assert 0.0 < client.connections.turn() <= 2.0
    client.connections._on_event(0, int(zmq.EVENT_CONNECT_RETRIED), 0, time.monotonic())
    assert client.connections.turn() == NEVER


def test_a_context_has_one_list_of_allowed_keys(started):
    started(Server, KEYS)
    with pytest.raises(LinkError, match="one list of allowed keys"):
        started(Server, KEYS)


@pytest.mark.parametrize(
    "request_", [[b"1.0"], [b"1.0", b"1", b"", b"", b"", b"NULL"], [b"2.0", b"1", b"", b"", b"", b"CURVE", bytes(32)]]
)
def test_requests_of_another_form_are_refused(started, context, request_):
    server = started(Server, KEYS)
    peer = context.socket(zmq.REQ)
    peer.connect("inproc://zeromq.zap.01")
    peer.send_multipart(request_)
    server.connections.turn()
    assert peer.recv_multipart()[2] == b"400"


def test_events_that_are_not_read_do_not_stop_the_handshakes_of_others(started):
    """libzmq's I/O thread would wait for room for an event: by default, there is room for 2,000."""
    server = started(Server, KEYS)
    for _ in range(2_100):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as peer:
            peer.sendall(GREETING)
            with suppress(ConnectionResetError):
                while peer.recv(1_000):
                    pass
    client = started(Client, server.address, ClientKeys(ALLOWED, SERVER.public))
    until(lambda: client.is_connected and server.counters.failed_handshakes == 2_100, server, client)
