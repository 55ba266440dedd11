"""Connections to servers that are slow to shake hands, never do, or talk without saying anything."""

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from queue import SimpleQueue

import pytest
import trustme

from headgate.agent.advice import connection as module
from headgate.agent.advice.addresses import Address
from headgate.agent.advice.connection import Connection, connected
from headgate.agent.advice.deadline import Deadline
from tests.unit.agent.advice.scripted import PATIENCE, serving, tickets

AUTHORITY = trustme.CA()


def server_side(*names: str) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(*(names or ("localhost",))).configure_cert(tls)
    return tls


def agent_side() -> ssl.SSLContext:
    tls = ssl.create_default_context()
    AUTHORITY.configure_trust(tls)
    return tls


@contextmanager
def reaching(port: int, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, seconds: float = PATIENCE):
    with connected(host, port, tls=tls, deadline=Deadline(seconds)) as connection:
        yield connection


def error_of(port: int, **options: object) -> OSError:
    """What comes of connecting and hearing what is said, which is no good."""
    with pytest.raises(OSError) as raised, reaching(port, **options) as connection:  # noqa: PT011 - it is looked at
        connection.receive()
    return raised.value


def all_of(connection: Connection) -> bytes:
    return b"".join(iter(connection.receive, b""))


@pytest.fixture
def leading_to(monkeypatch):
    """Have every host lead to these ports of 127.0.0.1."""

    def lead(*ports: int) -> None:
        found = [Address(socket.AF_INET, ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(module, "addresses_of", lambda host, port, deadline: found)

    return lead


@pytest.fixture
def refusing(free_port):
    return free_port()


@pytest.fixture
def silent_port():
    """A port where no connection is ever accepted or refused: its queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        queued = []
        try:
            for _ in range(8):
                queued.append(socket.socket())
                queued[-1].setblocking(False)
                with suppress(BlockingIOError):
                    queued[-1].connect(listening.getsockname())
            yield listening.getsockname()[1]
        finally:
            for sock in queued:
                sock.close()


def echo(connection, server):
    while chunk := connection.recv(1 << 16):
        connection.sendall(chunk)


def test_what_is_sent_and_received_over_either_family():
    for host in ("127.0.0.1", "::1"):
        with serving(echo, host=host) as server, reaching(server.port, host=host) as connection:
            connection.send(b"hello")
            assert connection.receive() == b"hello"


def test_the_end_of_what_comes_is_nothing():
    with serving(lambda connection, server: connection.sendall(b"bye")) as server, reaching(server.port) as connection:
        assert all_of(connection) == b"bye"
        assert connection.receive() == b""


def test_a_connection_is_closed_in_the_end_whatever_happens():
    ends: SimpleQueue[bytes] = SimpleQueue()
    with serving(lambda connection, server: ends.put(connection.recv(1))) as server:
        with pytest.raises(ZeroDivisionError), reaching(server.port):
            raise ZeroDivisionError
        assert ends.get(timeout=PATIENCE) == b""


def test_a_refused_connection_is_an_error(refusing):
    assert isinstance(error_of(refusing), ConnectionRefusedError)


def test_the_next_address_is_tried_when_one_refuses(leading_to, refusing):
    with serving(echo) as server:
        leading_to(refusing, refusing, server.port)
        with reaching(1) as connection:
            connection.send(b"hello")
            assert connection.receive() == b"hello"


def test_the_next_address_is_tried_when_one_says_nothing(leading_to, silent_port):
    with serving(echo) as server:
        leading_to(silent_port, silent_port, server.port)
        with reaching(1) as connection:
            connection.send(b"hello")
            assert connection.receive() == b"hello"


def test_what_is_said_is_the_error_of_the_last_address(leading_to, refusing):
    leading_to(refusing)
    assert isinstance(error_of(1), ConnectionRefusedError)
    leading_to()
    assert "no address" in str(error_of(1))


def test_an_address_of_a_family_that_there_is_not_is_an_error(leading_to, monkeypatch):
    with serving(echo) as server:
        unknown, known = Address(socket.AF_IPX, ("::1", 1)), Address(socket.AF_INET, ("127.0.0.1", server.port))
        monkeypatch.setattr(module, "addresses_of", lambda host, port, deadline: [unknown, known])
        with reaching(1) as connection:
            connection.send(b"hello")
            assert connection.receive() == b"hello"


def test_a_connection_that_is_never_accepted_ends_with_the_time(leading_to, silent_port):
    leading_to(silent_port, silent_port)
    assert isinstance(error_of(1, seconds=0.3), TimeoutError)


def test_nobody_is_connected_to_once_the_time_is_over():
    came: SimpleQueue[None] = SimpleQueue()
    with serving(lambda connection, server: came.put(None)) as server:
        assert isinstance(error_of(server.port, seconds=0), TimeoutError)
    assert came.empty()


def hold(connection, server):
    """Say nothing, and read nothing, until the test is over."""
    server.over.wait(PATIENCE)


@pytest.mark.parametrize("tls", [None, agent_side()], ids=["plain", "tls"])
def test_silence_ends_with_the_time(tls):
    with serving(hold) as server:
        assert isinstance(error_of(server.port, host="localhost", tls=tls, seconds=0.1), TimeoutError)


def test_a_message_that_is_not_read_ends_with_the_time():
    with serving(hold) as server, reaching(server.port, seconds=0.1) as connection, pytest.raises(TimeoutError):
        connection.send(b"x" * (1 << 26))


def first_flight(hello: bytes) -> bytes:
    """What a server answers to a hello."""
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    coming.write(hello)
    with pytest.raises(ssl.SSLWantReadError):
        server_side().wrap_bio(coming, going, server_side=True).do_handshake()
    return going.read()


@pytest.mark.parametrize(
    "answer",
    [first_flight, lambda hello: b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb", lambda hello: b"\x15\x03\x03\x40\x00"],
    ids=["as they should", "at length", "to be told off"],
)
def test_hands_that_are_shaken_drop_by_drop_are_let_go(answer):
    def drip(connection, server):
        said = answer(connection.recv(1 << 16))
        for position in range(10_000):
            connection.sendall(said[position : position + 1] or b"\0")
            if server.over.wait(0.02):
                return

    with serving(drip) as server:
        assert isinstance(error_of(server.port, host="localhost", tls=agent_side(), seconds=0.3), TimeoutError)


def test_a_server_that_says_nothing_at_length_is_not_read_to_its_end(tmp_path):
    # Were it, what comes last would be received, long after the time: the records are all there before it begins.
    sent = threading.Event()

    def talk(connection, server):
        records = tickets(connection, server_side(), 60_000, tmp_path / "keys")
        filling = threading.Thread(target=connection.sendall, args=(records,))
        filling.start()
        sent.set()
        filling.join(PATIENCE)

    with serving(talk) as server, reaching(server.port, host="localhost", tls=agent_side()) as connection:
        assert sent.wait(PATIENCE)
        connection._deadline = Deadline(0.03)
        with pytest.raises(TimeoutError):
            connection.receive()


def shaken(connection: socket.socket, tls: ssl.SSLContext) -> ssl.SSLSocket:
    """Shake hands; the end of what comes has to be said."""
    return tls.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False)


def test_tls_both_ways_and_to_its_proper_end():
    ends: SimpleQueue[bytes] = SimpleQueue()

    def talk(connection, server):
        with shaken(connection, server_side()) as secured:
            secured.sendall(secured.recv(1 << 16) * 20_000)
            ends.put(secured.recv(1))

    with serving(talk) as server:
        with reaching(server.port, host="localhost", tls=agent_side()) as connection:
            connection.send(b"hello")
            received = 0
            while received < 100_000:
                received += len(connection.receive())
        assert ends.get(timeout=PATIENCE) == b""


def test_an_end_that_is_not_said_is_an_end():
    def talk(connection, server):
        with shaken(connection, server_side()) as secured:
            secured.sendall(b"hello")

    with serving(talk) as server, reaching(server.port, host="localhost", tls=agent_side()) as connection:
        assert all_of(connection) == b"hello"


def test_an_end_that_is_said_is_an_end():
    def talk(connection, server):
        with shaken(connection, server_side()) as secured:
            secured.sendall(b"hello")
            with suppress(OSError):
                secured.unwrap()

    with serving(talk) as server, reaching(server.port, host="localhost", tls=agent_side()) as connection:
        assert all_of(connection) == b"hello"


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost", "localhost"), ("a.localhost.", "a.localhost"), ("127.0.0.1", None)],
)
def test_whom_it_asks_for_is_who_has_to_be_there(host, name):
    asked: SimpleQueue[str | None] = SimpleQueue()

    def talk(connection, server):
        tls = server_side(host.removesuffix("."))
        tls.sni_callback = lambda secured, server_name, context: asked.put(server_name)
        with shaken(connection, tls) as secured:
            secured.sendall(b"hello")

    with serving(talk) as server, reaching(server.port, host=host, tls=agent_side()) as connection:
        assert connection.receive() == b"hello"
    assert asked.get() == name


@pytest.mark.parametrize("tls", [agent_side(), ssl.create_default_context()], ids=["another's name", "nobody's"])
def test_who_is_not_trusted_is_told_so(tls):
    alerts: SimpleQueue[str] = SimpleQueue()

    def talk(connection, server):
        with pytest.raises(ssl.SSLError) as refusal:
            shaken(connection, server_side("another.example"))
        alerts.put(refusal.value.reason)

    with serving(talk) as server:
        assert isinstance(error_of(server.port, host="localhost", tls=tls), ssl.SSLCertVerificationError)
        assert "ALERT" in alerts.get(timeout=PATIENCE)


def test_a_server_without_tls_is_an_error():
    with serving(lambda connection, server: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        assert isinstance(error_of(server.port, host="localhost", tls=agent_side()), ssl.SSLError)


def test_a_server_that_goes_while_hands_are_shaken_is_an_error():
    with serving(lambda connection, server: connection.recv(1)) as server:
        assert not isinstance(error_of(server.port, host="localhost", tls=agent_side()), TimeoutError)


def test_a_name_that_no_certificate_can_be_for_is_an_error():
    with serving(lambda connection, server: None) as server:
        assert "no certificate" in str(error_of(server.port, host=".localhost", tls=agent_side()))


def test_another_protocol_than_http_1_1_is_not_spoken():
    agent = agent_side()
    agent.set_alpn_protocols(["h2"])

    def talk(connection, server):
        tls = server_side()
        tls.set_alpn_protocols(["h2"])
        with shaken(connection, tls) as secured, suppress(ssl.SSLEOFError):
            secured.recv(1)

    with serving(talk) as server:
        assert "h2 was chosen" in str(error_of(server.port, host="localhost", tls=agent))
