"""Data planes with hostile peers on their sockets, few descriptors, floods of identifiers, and each kind of bus."""

import os
import resource
import signal
import socket
from contextlib import ExitStack, suppress

import psutil
import pytest

from tests.e2e.plane_system import ACCEPTED, PLANES, REJECTED, running_plane

MEBIBYTE = 1024 * 1024
GARBAGE = [
    b"\0" * 100_000,
    b"\xff" * 100_000,
    b"\n" * 100_000,
    b"A" * 5_000_000,
    b"999999999999999999999999 1 1 1\n",
    b"accepted 1 0 9 default\0x\n" * 10_000,
    b"1 1 x\n" * 10_000,
    b"99999999999999 99999999999999 y\n" * 1_000,
    b"dropped 99999999999999999999\n" * 100,
    b"-1 -1 -1 -1\n" * 1_000,
    b"GET / HTTP/1.1\r\nHost: x\r\nX-Client: " + b"a" * 1_000_000 + b"\r\n\r\n",
    b"GET /" + b"%" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 1_000_000,
]


planes = pytest.mark.parametrize(
    "plane",
    [pytest.param(one, marks=pytest.mark.needs("nginx", one.needed), id=one.name) for one in PLANES.values()],
)


def memory(node):
    return psutil.Process(node.pid).memory_info().rss


def connected(path):
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(1.0)
    peer.connect(path)
    return peer


@planes
def test_hostile_peers_end_nothing_and_fill_nothing(plane):
    """The socket may have mode 0666: any process of the machine connects to it."""
    with running_plane(plane) as system, ExitStack() as peers:
        before = memory(system.nodes["sidecar"])
        for data in GARBAGE * 3:
            peer = peers.enter_context(connected(system.socket))
            with suppress(OSError):  # the sidecar may close it, or stop reading it
                peer.sendall(data)
        silent = [peers.enter_context(connected(system.socket)) for _ in range(50)]
        assert len(silent) == 50
        system.wait_until_limited()
        assert memory(system.nodes["sidecar"]) < before + 64 * MEBIBYTE
        assert "Traceback" not in system.nodes["sidecar"].said()


@planes
@pytest.mark.deep
def test_a_sidecar_without_descriptors_lets_requests_pass_and_recovers(plane):
    with running_plane(plane) as system:
        sidecar = system.nodes["sidecar"]
        limit = sidecar.open_files() + 20
        resource.prlimit(sidecar.pid, resource.RLIMIT_NOFILE, (limit, limit))
        with ExitStack() as peers:
            for _ in range(100):
                with suppress(OSError):
                    peers.enter_context(connected(system.socket))
            assert {system.get(f"crowded{number}") for number in range(20)} == {ACCEPTED}
        system.wait_until_limited()
        assert "Traceback" not in sidecar.said()


@planes
def test_a_hold_ends_on_time_without_a_sidecar(plane):
    """Each interval begins with an accepted request; without accounting no other hold follows."""
    with running_plane(plane, rule="20/min burst 1") as system:
        system.hold(["short"])
        os.kill(system.nodes["sidecar"].pid, signal.SIGSTOP)
        statuses = [system.get("short")]
        while statuses[-1] == REJECTED and len(statuses) < 100_000:
            statuses.append(system.get("short"))
        assert statuses[-1] == ACCEPTED
        assert {system.get("short") for _ in range(10)} == {ACCEPTED}
