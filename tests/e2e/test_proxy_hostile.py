"""Attacks on a running `headgate proxy`: its memory grows little, and other clients are served throughout.

What connections are ended for is proven where they are; here is what many of them cost together.
"""

import os
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

from tests.e2e.besieged import POUR, SILENT, Besieged, address, besieged
from tests.e2e.proxied import Client

SHELLS = pytest.mark.parametrize("tls", [True, False], ids=["tls", "plaintext"])
READ_AHEAD = 32 << 20
"""Bytes of a stalled tunnel that are read ahead at most, by the proxy and the system together."""
DESCRIPTORS = 14_000
"""For the largest of these crowds, in this process."""


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < DESCRIPTORS:
        pytest.skip(f"{before[1]} open files are too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], DESCRIPTORS), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


# Handshakes.


def hello(siege: Besieged) -> bytes:
    """Give the first bytes of a client that speaks TLS."""
    going = ssl.MemoryBIO()
    beginning = siege.proxy.tls.wrap_bio(ssl.MemoryBIO(), going, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        beginning.do_handshake()
    return going.read()


@pytest.mark.deep
@pytest.mark.parametrize("share", [0, 0.5, 1], ids=["nothing", "half a hello", "a hello"])
def test_a_thousand_unfinished_handshakes_use_little_memory(share: float, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=True) as siege:
        beginning = hello(siege)
        for number in range(1000):
            siege.connect(number).send(beginning[: int(len(beginning) * share)])
        siege.wait()


@SHELLS
def test_garbage_uses_little_memory(tls: bool, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=tls) as siege:
        for number in range(2000):
            with siege.connect(number) as sock, suppress(ConnectionError):
                sock.send((b"\x16\x03\x01" if number % 2 else b"") + os.urandom(3000))


def test_records_of_one_byte_use_little_memory(tmp_path: Path) -> None:
    with besieged(tmp_path, tls=True) as siege:
        client = siege.client()
        assert client.ask(siege.to).status == 200
        for _ in range(20):
            for _ in range(500):
                client.send(b"x")
            assert client.read(500) == b"x" * 500


# Heads.


@pytest.mark.deep
@SHELLS
def test_a_thousand_unfinished_heads_use_little_memory(tls: bool, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=tls) as siege:
        for number in range(1000):
            siege.client(number).send(b"CONNECT www.example.net:443 HTTP/1.1\r\nX: " + b"x" * 16_000)
        siege.wait()


@pytest.mark.deep
@SHELLS
def test_unread_refusals_use_little_memory(tls: bool, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=tls) as siege:
        client = siege.client()
        client.sock.settimeout(1)
        most = 256 << 20
        piece = b"CONNECT www.example.net:25 HTTP/1.1\r\n\r\n" * 1000
        with suppress(TimeoutError, ConnectionError):
            while most > 0:
                most -= client.sock.send(piece)
        assert most > 0, "all of it was taken"


@SHELLS
def test_many_refused_names_use_little_memory(tls: bool, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=tls) as siege:
        client = siege.client()
        for turn in range(100):
            names = [f"{turn}.{number}.{'x' * 60}.example.net:25" for number in range(100)]
            client.send("".join(f"CONNECT {name} HTTP/1.1\r\n\r\n" for name in names).encode())
            assert [client.answer().reason for _ in names] == ["port"] * 100


@SHELLS
def test_data_sent_before_a_decision_uses_little_memory(tls: bool, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=tls) as siege:
        siege.crowd.holds = True
        for _ in range(250):
            client = siege.client()
            client.sock.settimeout(0.2)
            with suppress(TimeoutError):
                client.send(f"CONNECT {siege.to} HTTP/1.1\r\n\r\n".encode() + bytes(200_000))
        siege.wait()
        siege.crowd.release()


@pytest.mark.deep
@SHELLS
def test_a_client_that_disconnects_after_each_new_origin_starts_few_fetches(tls: bool, tmp_path: Path) -> None:
    """Each would be asked for advice long after: so many are, as one client may have tunnels."""
    with besieged(tmp_path, tls=tls) as siege:
        siege.crowd.holds = True
        for number in range(1500 if tls else 3000):
            with siege.proxy.client(source=address(0)) as client:
                client.send(f"CONNECT {number}.example.net:{siege.crowd.port} HTTP/1.1\r\n\r\n".encode())
                time.sleep(0.001)
                reset(client.sock)
        assert siege.crowd.taken >= 32  # as many fetches of advice as may go to one address at once
        siege.crowd.release()


def reset(sock: socket.socket) -> None:
    """Have it seen at the other end, when this is closed, that nothing is read any more."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# Tunnels.


@SHELLS
def test_tunnels_end_for_clients_that_close_their_sending_side(tls: bool, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=tls) as siege:
        clients = [siege.client(number) for number in range(500)]
        for client in clients:
            client.send(f"CONNECT {siege.to} HTTP/1.1\r\n\r\nhello".encode())
            socket.socket.shutdown(client.sock, socket.SHUT_WR)
        if not tls:  # inside TLS such an end may be an attack, and ends all
            for client in clients:
                assert client.answer().status == 200
                assert client.read_to_end() == b"hello"
        siege.proxy.program.until(lambda: siege.proxy.metrics()["headgate_proxy_tunnels"] <= 2, "end of tunnels")


@pytest.mark.deep
@SHELLS
def test_tunnels_whose_clients_do_not_read_use_little_memory(tls: bool, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=tls) as siege:
        for number in range(100):
            client = siege.client(number)
            assert client.ask(siege.to).status == 200
            client.send(POUR)
        assert 0 < settled(siege, 100) < READ_AHEAD


def settled(siege: Besieged, count: int) -> int:
    """Wait until so many are poured at and nothing more is taken; give the most that was, or is being, by one."""
    poured, before = siege.crowd.poured, -1
    siege.proxy.program.until(lambda: len(poured) == count, f"{count} that are poured at")
    while before < sum(poured.values()) and max(poured.values()) < READ_AHEAD:
        before = sum(poured.values())
        time.sleep(0.5)
    return max(poured.values())


@pytest.mark.deep
@SHELLS
def test_tunnels_whose_targets_do_not_read_use_little_memory(tls: bool, tmp_path: Path) -> None:
    with besieged(tmp_path, tls=tls) as siege:
        for number in range(20):
            client = siege.client(number)
            assert client.ask(siege.to).status == 200
            client.send(SILENT)
            client.sock.settimeout(0.1)
            left = READ_AHEAD
            with suppress(TimeoutError, ssl.SSLWantWriteError):
                while left > 0:
                    left -= client.sock.send(bytes(100_000))
            assert left > 0
        siege.wait()
        siege.crowd.release()


@pytest.mark.deep
def test_five_thousand_idle_tunnels_use_little_memory(tmp_path: Path) -> None:
    with besieged(tmp_path, tls=False) as siege:
        clients = [siege.client(number) for number in range(5000)]
        for client in clients:
            assert client.ask(siege.to).status == 200
        siege.wait()
        assert siege.proxy.metrics()["headgate_proxy_tunnels"] >= 5001
        assert all(client.echoes() for client in clients[::100])


@pytest.mark.deep
def test_a_thousand_idle_tunnels_inside_tls_use_little_memory(tmp_path: Path) -> None:
    with besieged(tmp_path, tls=True) as siege:
        clients = [siege.client(number) for number in range(1000)]
        for client in clients:
            assert client.ask(siege.to).status == 200
        siege.wait()
        assert all(client.echoes() for client in clients[::100])


# In HTTP/2.


class Streams:
    """A connection of HTTP/2 with many CONNECTs at once; bytes as they are, but for the heads of answers."""

    def __init__(self, siege: Besieged, number: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        siege.proxy.origin.authority.configure_trust(context)
        context.set_alpn_protocols(["h2"])
        self.client = Client(siege.proxy.port, tls=context, source=address(number))
        siege.kept.append(self.client)
        self._encoder, self._decoder = Encoder(), Decoder()
        self._next = 1
        self.client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize())

    def ask(self, *authorities: str) -> None:
        """Ask for tunnels."""
        frames = b""
        for authority in authorities:
            block = self._encoder.encode([(":method", "CONNECT"), (":authority", authority)])
            frames += HeadersFrame(self._next, data=block, flags=["END_HEADERS"]).serialize()
            self._next += 2
        self.client.send(frames)

    def statuses(self, count: int) -> list[str]:
        """Read so many answers."""
        found: list[str] = []
        while len(found) < count:
            frame, length = Frame.parse_frame_header(memoryview(self.client.read(9)))
            frame.parse_body(memoryview(self.client.read(length)))
            if isinstance(frame, HeadersFrame):
                found.append(dict(self._decoder.decode(frame.data))[":status"])
        return found


@pytest.mark.deep
def test_a_client_that_resets_a_stream_for_each_new_origin_starts_few_fetches(tmp_path: Path) -> None:
    with besieged(tmp_path, tls=True) as siege:
        siege.crowd.holds = True
        for turn in range(40):
            streams = Streams(siege, 0)
            streams.ask(*(f"{turn}.{number}.example.net:{siege.crowd.port}" for number in range(99)))
            time.sleep(0.02)
            reset(siege.kept.pop().sock)
            streams.client.sock.close()
        siege.wait()
        siege.crowd.release()


@pytest.mark.deep
def test_a_thousand_idle_http2_connections_use_little_memory(tmp_path: Path) -> None:
    with besieged(tmp_path, tls=True) as siege:
        for number in range(1000):
            Streams(siege, number)
        siege.wait()


@pytest.mark.deep
def test_five_thousand_idle_streams_use_little_memory(tmp_path: Path) -> None:
    with besieged(tmp_path, tls=True) as siege:
        for number in range(50):
            streams = Streams(siege, number)
            streams.ask(*[siege.to] * 100)
            assert streams.statuses(100) == ["200"] * 100
        siege.wait()
        assert siege.proxy.metrics()["headgate_proxy_tunnels"] >= 5001


@pytest.mark.deep
def test_stream_windows_do_not_grow_while_targets_do_not_read(tmp_path: Path) -> None:
    with besieged(tmp_path, tls=True) as siege:
        for number in range(10):
            streams = Streams(siege, number)
            streams.ask(*[siege.to] * 100)
            assert streams.statuses(100) == ["200"] * 100
            data = b"".join(b"\0\0\1\0\0" + (2 * each + 1).to_bytes(4) + POUR for each in range(100))
            streams.client.send(WindowUpdateFrame(0, window_increment=1 << 30).serialize() + data)
        assert settled(siege, 1000) < READ_AHEAD
