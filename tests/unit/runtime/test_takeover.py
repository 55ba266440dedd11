import asyncio
import errno
import socket
from contextlib import ExitStack

import pytest

from headgate.config import Configuration, parse
from headgate.errors import ConfigurationError
from headgate.origin.sidecar.unix_socket import UnixSocket
from headgate.runtime.listen import Endpoint, ListenerSockets, take_at
from headgate.runtime.takeover import Predecessor, serve_takeover


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


async def test_sockets_are_given_to_each_process_until_one_is_ready(tmp_path, opened, monkeypatch):
    path = str(tmp_path / "takeover")
    none = Predecessor(path)
    assert none.sockets == []
    await none.replace()
    listener = UnixSocket(path, mode=0o600, flag="gate.takeover")
    opened.callback(listener.close)
    served = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
    replaced = []

    async def descriptors():
        return [served.fileno()]

    accept, left = asyncio.get_running_loop().sock_accept, [True]

    async def accept_later(sock):
        if left:
            left.pop()
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(sock)

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", accept_later)
    serving = asyncio.ensure_future(serve_takeover(listener.socket, descriptors, lambda: replaced.append(True)))
    for fails in (True, False):
        successor = await asyncio.to_thread(Predecessor, path)
        (given,) = successor.sockets
        assert given.getsockname() == served.getsockname()
        assert not given.get_inheritable()
        given.close()
        if fails:
            successor._peer.close()
        else:
            assert replaced == []
            await successor.replace()
    await serving
    assert replaced == [True]


async def test_a_gate_that_does_not_answer_is_an_error(tmp_path, opened, monkeypatch):
    monkeypatch.setattr("headgate.runtime.takeover._TIMEOUT", 0.01)
    path = str(tmp_path / "takeover")
    opened.callback(UnixSocket(path, mode=0o600, flag="gate.takeover").close)
    with pytest.raises(ConfigurationError, match=r"no answer at .*takeover' .*; stop that gate"):
        Predecessor(path)


@pytest.mark.parametrize(
    ("count", "workers", "expected"),
    [
        (1, 1, [[0]]),
        (1, 3, [[0], [0], [0]]),
        (2, 3, [[0], [1], [0]]),
        (3, 2, [[0, 2], [1]]),
        (0, 2, [[], []]),
    ],
)
def test_each_socket_has_a_worker_and_each_worker_a_socket(count, workers, expected):
    endpoint = Endpoint(0, ("a", 1), tuple(range(count)))
    assert [endpoint.of_worker(number, workers) for number in range(workers)] == expected


@pytest.mark.parametrize(
    ("address", "bound", "found"),
    [
        ("127.0.0.1:PORT", "127.0.0.1", True),
        ("localhost:PORT", "127.0.0.1", True),
        ("127.0.0.1:0", "127.0.0.1", True),
        ("127.0.0.1:1", "127.0.0.1", False),
        ("127.0.0.2:PORT", "127.0.0.1", False),
        ("absent.invalid:PORT", "127.0.0.1", False),
        ("*:PORT", "0.0.0.0", True),
        (":PORT", "0.0.0.0", True),
        ("unix:PATH", "", True),
        ("unix:/absent", "", False),
        ("127.0.0.1:PORT", "", False),
    ],
)
def test_an_inherited_socket_belongs_to_the_listener_with_its_address(tmp_path, opened, address, bound, found):
    if bound:
        sock = opened.enter_context(socket.create_server((bound, 0)))
    else:
        sock = opened.enter_context(socket.socket(socket.AF_UNIX))
        sock.bind(str(tmp_path / "a"))
    port = str(sock.getsockname()[1]) if bound else "1"
    inherited = [sock]
    taken = take_at(address.replace("PORT", port).replace("PATH", str(tmp_path / "a")), inherited)
    assert (taken, inherited) == (([sock], []) if found else ([], [sock]))


def test_new_sockets_are_opened_for_listeners_that_inherit_none(tmp_path, opened):
    text = f'[gate]\nlisten = ["127.0.0.1:0", "unix:{tmp_path}/a", "127.0.0.2:0"]\nworkers = 2'
    other = opened.enter_context(socket.create_server(("127.0.0.2", 0)))
    listeners = ListenerSockets(parse(text), [other], opened)
    opened.callback(listeners.close)
    assert [(one.listener, len(one.descriptors)) for one in listeners.endpoints] == [(0, 2), (1, 1), (2, 1)]
    assert listeners.endpoints[2].descriptors == (other.fileno(),)
    assert listeners.endpoints[1].url(tls=True) == f"unix:{tmp_path}/a"
    assert len({sock.getsockname() for sock in listeners.sockets[:2]}) == 1
    assert Configuration().gate.takeover == ""


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_listeners_without_a_port_keep_that_of_the_gate_before(opened):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tree = parse(f'[gate]\nlisten = ["127.0.0.1:0", "*:0", "127.0.0.1:0", "127.0.0.1:{port}"]\nworkers = 2')
    before = ListenerSockets(tree, [], opened)
    assert len({one.address.port for one in before.endpoints}) == 4
    assert ListenerSockets(tree, list(before.sockets), opened).endpoints == before.endpoints
    other = parse(f'[gate]\nlisten = ["127.0.0.1:0", "127.0.0.1:{port}"]')
    assert (
        ListenerSockets(other, before.sockets[-2:], opened).endpoints[1].descriptors == before.endpoints[-1].descriptors
    )
