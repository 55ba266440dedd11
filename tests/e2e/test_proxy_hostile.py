"""Attacks on a running `headgate proxy`: its memory grows little, and other clients are served throughout.

Why single connections are closed is tested with the connections; this is what many of them cost together.
"""

import resource
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hpack import Decoder, Encoder
from hyperframe.frame import Frame, HeadersFrame, SettingsFrame, WindowUpdateFrame

from tests.e2e.attacked_proxy import POUR, SILENT, AttackedProxy, address, attacked_proxy
from tests.e2e.proxy_setup import Client

TRANSPORTS = pytest.mark.parametrize("tls", [True, False], ids=["tls", "plaintext"])
READ_AHEAD = 32 << 20
"""Bytes of a stalled tunnel that are read ahead at most, by the proxy and the system together."""
DESCRIPTORS = 14_000
"""Open files of this process, for the test with the most connections."""


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < DESCRIPTORS:
        pytest.skip(f"{before[1]} open files are too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], DESCRIPTORS), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


# Handshakes.


def hello(attacked: AttackedProxy) -> bytes:
    """Return the first bytes of a TLS client."""
    going = ssl.MemoryBIO()
    beginning = attacked.proxy.tls.wrap_bio(ssl.MemoryBIO(), going, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        beginning.do_handshake()
    return going.read()


@pytest.mark.deep
@pytest.mark.parametrize("share", [0, 0.5, 1], ids=["nothing", "half a hello", "a hello"])
def test_a_thousand_unfinished_handshakes_use_little_memory(share: float, tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=True) as attacked:
        beginning = hello(attacked)
        for number in range(1000):
            attacked.connect(number).send(beginning[: int(len(beginning) * share)])
        attacked.wait()


# Heads.


@pytest.mark.deep
@TRANSPORTS
def test_unread_refusals_use_little_memory(tls: bool, tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=tls) as attacked:
        client = attacked.client()
        client.sock.settimeout(1)
        most = 256 << 20
        piece = b"CONNECT www.example.net:25 HTTP/1.1\r\n\r\n" * 1000
        with suppress(TimeoutError, ConnectionError):
            while most > 0:
                most -= client.sock.send(piece)
        assert most > 0, "all of it was taken"


@TRANSPORTS
def test_data_sent_before_a_decision_uses_little_memory(tls: bool, tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=tls) as attacked:
        attacked.targets.holds = True
        for _ in range(250):
            client = attacked.client()
            client.sock.settimeout(0.2)
            with suppress(TimeoutError):
                client.send(f"CONNECT {attacked.to} HTTP/1.1\r\n\r\n".encode() + bytes(200_000))
        attacked.wait()
        attacked.targets.release()


@pytest.mark.deep
@TRANSPORTS
def test_a_client_that_disconnects_after_each_new_origin_starts_few_fetches(tls: bool, tmp_path: Path) -> None:
    """There are as many fetches as one client may have tunnels."""
    with attacked_proxy(tmp_path, tls=tls) as attacked:
        attacked.targets.holds = True
        for number in range(1500 if tls else 3000):
            with attacked.proxy.client(source=address(0)) as client:
                client.send(f"CONNECT {number}.example.net:{attacked.targets.port} HTTP/1.1\r\n\r\n".encode())
                time.sleep(0.001)
                reset(client.sock)
        assert attacked.targets.taken >= 32  # as many fetches of advice as may go to one address at once
        attacked.targets.release()


def reset(sock: socket.socket) -> None:
    """Close with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# Tunnels.


@pytest.mark.deep
@TRANSPORTS
def test_tunnels_whose_clients_do_not_read_use_little_memory(tls: bool, tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=tls) as attacked:
        for number in range(100):
            client = attacked.client(number)
            assert client.ask(attacked.to).status == 200
            client.send(POUR)
        assert 0 < settled(attacked, 100) < READ_AHEAD


def settled(attacked: AttackedProxy, count: int) -> int:
    """Wait until so many targets send and nothing more is read; return the bytes of the one that sent most."""
    poured, before = attacked.targets.poured, -1
    attacked.proxy.program.until(lambda: len(poured) == count, f"{count} that are poured at")
    while before < sum(poured.values()) and max(poured.values()) < READ_AHEAD:
        before = sum(poured.values())
        time.sleep(0.5)
    return max(poured.values())


@pytest.mark.deep
@TRANSPORTS
def test_tunnels_whose_targets_do_not_read_use_little_memory(tls: bool, tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=tls) as attacked:
        for number in range(20):
            client = attacked.client(number)
            assert client.ask(attacked.to).status == 200
            client.send(SILENT)
            client.sock.settimeout(0.1)
            left = READ_AHEAD
            with suppress(TimeoutError, ssl.SSLWantWriteError):
                while left > 0:
                    left -= client.sock.send(bytes(100_000))
            assert left > 0
        attacked.wait()
        attacked.targets.release()


@pytest.mark.deep
def test_five_thousand_idle_tunnels_use_little_memory(tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=False) as attacked:
        clients = [attacked.client(number) for number in range(5000)]
        for client in clients:
            assert client.ask(attacked.to).status == 200
        attacked.wait()
        assert attacked.proxy.metrics()["headgate_proxy_tunnels"] >= 5001
        assert all(client.echoes() for client in clients[::100])


# In HTTP/2.


class Streams:
    """An HTTP/2 connection with many CONNECT requests at once, which reads the heads of responses only."""

    def __init__(self, attacked: AttackedProxy, number: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        attacked.proxy.origin.authority.configure_trust(context)
        context.set_alpn_protocols(["h2"])
        self.client = Client(attacked.proxy.port, tls=context, source=address(number))
        attacked.kept.append(self.client)
        self._encoder, self._decoder = Encoder(), Decoder()
        self._next = 1
        self.client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize())

    def ask(self, *authorities: str) -> None:
        """Request tunnels."""
        frames = b""
        for authority in authorities:
            block = self._encoder.encode([(":method", "CONNECT"), (":authority", authority)])
            frames += HeadersFrame(self._next, data=block, flags=["END_HEADERS"]).serialize()
            self._next += 2
        self.client.send(frames)

    def statuses(self, count: int) -> list[str]:
        """Read so many responses."""
        found: list[str] = []
        while len(found) < count:
            frame, length = Frame.parse_frame_header(memoryview(self.client.read(9)))
            frame.parse_body(memoryview(self.client.read(length)))
            if isinstance(frame, HeadersFrame):
                found.append(dict(self._decoder.decode(frame.data))[":status"])
        return found


@pytest.mark.deep
def test_a_client_that_resets_a_stream_for_each_new_origin_starts_few_fetches(tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=True) as attacked:
        attacked.targets.holds = True
        for turn in range(40):
            streams = Streams(attacked, 0)
            streams.ask(*(f"{turn}.{number}.example.net:{attacked.targets.port}" for number in range(99)))
            time.sleep(0.02)
            reset(attacked.kept.pop().sock)
            streams.client.sock.close()
        attacked.wait()
        attacked.targets.release()


@pytest.mark.deep
def test_five_thousand_idle_streams_use_little_memory(tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=True) as attacked:
        for number in range(50):
            streams = Streams(attacked, number)
            streams.ask(*[attacked.to] * 100)
            assert streams.statuses(100) == ["200"] * 100
        attacked.wait()
        assert attacked.proxy.metrics()["headgate_proxy_tunnels"] >= 5001


@pytest.mark.deep
def test_stream_windows_do_not_grow_while_targets_do_not_read(tmp_path: Path) -> None:
    with attacked_proxy(tmp_path, tls=True) as attacked:
        for number in range(10):
            streams = Streams(attacked, number)
            streams.ask(*[attacked.to] * 100)
            assert streams.statuses(100) == ["200"] * 100
            data = b"".join(b"\0\0\1\0\0" + (2 * each + 1).to_bytes(4) + POUR for each in range(100))
            streams.client.send(WindowUpdateFrame(0, window_increment=1 << 30).serialize() + data)
        assert settled(attacked, 1000) < READ_AHEAD
