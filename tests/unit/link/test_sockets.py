import re
import socket
from contextlib import suppress

import pytest
import zmq

from headgate.errors import ConfigurationError, LinkError
from headgate.link import sockets
from headgate.link.curve import ServerKeys, new_key_pair
from headgate.link.sockets import (
    bind_again,
    bind_pair,
    connect_pair,
    endpoints,
    file_descriptor,
    has_message,
    open_socket,
)
from tests.quotes import quotes


@pytest.fixture
def pair_of(context):
    return lambda: [open_socket(context, kind, queue=10, largest=100) for kind in (zmq.SUB, zmq.XPUB)]


def test_queues_and_frames_are_bounded(context):
    one = open_socket(context, zmq.XPUB, queue=17, largest=100)
    assert (one.getsockopt(zmq.SNDHWM), one.getsockopt(zmq.RCVHWM), one.getsockopt(zmq.MAXMSGSIZE)) == (17, 17, 100)
    assert one.getsockopt(zmq.LINGER) == 0
    assert one.getsockopt(zmq.TCP_KEEPALIVE) == 1
    assert file_descriptor(one) > 0


def test_two_consecutive_ports_are_found_where_the_next_one_is_always_in_use(pair_of, monkeypatch):
    """As after thousands of outgoing connections, to which the system gives every second port."""
    bind = sockets._bind

    def bind_no_other(one, endpoint):
        port = int(endpoint.rpartition(":")[2])
        if port >= 32_768:
            raise LinkError("in use")
        return bind(one, endpoint)

    monkeypatch.setattr(sockets, "_bind", bind_no_other)
    accounting, control = bind_pair(*pair_of(), "tcp://127.0.0.1:0")
    assert int(control.rpartition(":")[2]) == int(accounting.rpartition(":")[2]) + 1
    assert 10_000 <= int(accounting.rpartition(":")[2]) < 32_767


def test_a_host_name_is_bound_by_its_address(pair_of):
    accounting, _ = bind_pair(*pair_of(), "localhost:0")
    assert accounting.startswith(("tcp://127.0.0.1:", "tcp://[::1]:"))


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6_addresses_are_bound_and_connected(pair_of):
    accounting, control = bind_pair(*pair_of(), "tcp://[::1]:0")
    assert accounting.startswith("tcp://[::1]:")
    port = accounting.rpartition(":")[2]
    assert connect_pair(*pair_of(), f"[::1]:{port}") == (accounting, control)


def two_consecutive_ports():
    """Return a plain socket on each of two consecutive ports."""
    while True:
        one = socket.create_server(("127.0.0.1", 0))
        try:
            return one, socket.create_server(("127.0.0.1", one.getsockname()[1] + 1))
        except OSError:
            one.close()


@pytest.mark.parametrize("which", [0, 1])
def test_a_taken_port_is_named(pair_of, which):
    ports = two_consecutive_ports()
    port = ports[0].getsockname()[1]
    ports[1 - which].close()
    role = rf", the control port of tcp://127\.0\.0\.1:{port}," if which else ""
    sentence = rf"tcp://127\.0\.0\.1:{port + which}{role} cannot be bound \(Address already in use\); free it or name"
    with ports[which], pytest.raises(LinkError, match=sentence):
        bind_pair(*pair_of(), f"tcp://127.0.0.1:{port}")


def test_the_path_of_another_master_is_not_replaced(pair_of, tmp_path):
    address = f"ipc://{tmp_path}/bus"
    assert bind_pair(*pair_of(), address) == (address, f"{address}.control")
    with pytest.raises(LinkError, match=r"bus cannot be bound \(another master answers there\)"):
        bind_pair(*pair_of(), address)


def test_a_stale_path_is_used_again(pair_of, tmp_path):
    (tmp_path / "bus").touch()
    bind_pair(*pair_of(), f"ipc://{tmp_path}/bus")


@pytest.mark.parametrize(
    "address", ["tcp://192.0.2.7:0", "tcp://no-such-host.invalid:0", "ipc:///no/such/folder/bus", "ipc://" + "x" * 200]
)
def test_an_address_that_cannot_be_bound_is_one_sentence(pair_of, address):
    with pytest.raises(LinkError) as raised:
        bind_pair(*pair_of(), address)
    assert "\n" not in str(raised.value)
    assert address.partition(":0")[0].removeprefix("tcp://") in str(raised.value)


@quotes("smockron Low-Level Proto", "tcp:10004 SUB", "tcp:10005 PUB")
@pytest.mark.parametrize(
    ("address", "accounting", "control"),
    [
        ("127.0.0.1", "tcp://127.0.0.1:10004", "tcp://127.0.0.1:10005"),
        ("127.0.0.1:9000", "tcp://127.0.0.1:9000", "tcp://127.0.0.1:9001"),
        ("tcp://master.example", "tcp://master.example:10004", "tcp://master.example:10005"),
        ("tcp://master.example:7", "tcp://master.example:7", "tcp://master.example:8"),
        ("tcp://*:10004", "tcp://*:10004", "tcp://*:10005"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
        ("tcp://127.0.0.1:65534", "tcp://127.0.0.1:65534", "tcp://127.0.0.1:65535"),
        ("[::1]:9000", "tcp://[::1]:9000", "tcp://[::1]:9001"),
        ("tcp://[2001:db8::7]", "tcp://[2001:db8::7]:10004", "tcp://[2001:db8::7]:10005"),
        ("tcp://[fe80::1%eth0]:7", "tcp://[fe80::1%eth0]:7", "tcp://[fe80::1%eth0]:8"),
        ("::1", "tcp://[::1]:10004", "tcp://[::1]:10005"),
        ("ipc:///run/headgate.sock", "ipc:///run/headgate.sock", "ipc:///run/headgate.sock.control"),
        ("ipc://@headgate", "ipc://@headgate", "ipc://@headgate.control"),
        ("inproc://bus", "inproc://bus", "inproc://bus.control"),
    ],
)
def test_one_address_names_both_sockets(address, accounting, control):
    assert endpoints(address) == (accounting, control)


INVALID = [
    "", " ", "127.0.0.1:", ":10004", "127.0.0.1:65535", "127.0.0.1:99999", "127.0.0.1:-1", "tcp://", "tcp://a b",
    "tcp://host:1:2", "tcp://a..b:1", "x" * 64 + ":1", "tcp://host/path", "udp://127.0.0.1:1", "http://127.0.0.1:1",
    "ipc://", "inproc://", "[::1", "tcp://eth0;127.0.0.1:5555",
]  # fmt: skip


def test_an_invalid_address_is_quoted_beside_a_valid_one():
    for address in INVALID:
        message = f"invalid master address {address!r}; expected one such as 'tcp://127.0.0.1:10004'"
        with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
            endpoints(address)


def test_a_waiting_message_is_reported(pair):
    sender, receiver = pair(zmq.PUSH, zmq.PULL)
    assert not has_message(receiver)
    sender.send(b"x")
    assert has_message(receiver)


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "[::]", "192.0.2.1"])
def test_an_address_beyond_loopback_needs_keys_or_insecure(pair_of, host):
    if ":" in host and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    sentence = r"other machines can reach this address.*--curve-key, --curve-allow.*headgate keys new.*--insecure"
    with pytest.raises(LinkError, match=sentence):
        bind_pair(*pair_of(), f"tcp://{host}:0")


def test_an_address_beyond_loopback_is_bound_with_insecure_or_keys(pair_of):
    accounting, _ = bind_pair(*pair_of(), "tcp://0.0.0.0:0", insecure=True)
    assert accounting.startswith("tcp://0.0.0.0:")
    pair = new_key_pair()
    accounting, _ = bind_pair(*pair_of(), "tcp://0.0.0.0:0", ServerKeys(pair, {}))
    assert accounting.startswith("tcp://0.0.0.0:")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost"])
def test_loopback_addresses_need_no_keys(pair_of, host):
    assert bind_pair(*pair_of(), f"{host}:0")


def test_sockets_are_bound_again_also_after_an_attempt_that_failed(pair_of, monkeypatch):
    monkeypatch.setattr(sockets, "_REBIND_TRIES", 2)
    both = pair_of()
    bound = bind_pair(*both, "tcp://127.0.0.1:0")
    both[1].unbind(bound.control)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while other.getsockname()[1] == 0:  # libzmq's thread closes the listener
            with suppress(OSError):
                other.bind(("127.0.0.1", int(bound.control.rpartition(":")[2])))
        other.listen()
        with pytest.raises(LinkError, match="cannot be bound"):
            bind_again(both, bound)
    monkeypatch.undo()
    bind_again(both, bound)
    assert both[1].getsockopt_string(zmq.LAST_ENDPOINT) == bound.control
