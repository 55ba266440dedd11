"""`headgate proxy` under attack: how much memory it uses, and whether other clients are served.

Another client, the bystander, has a tunnel that echoes, and opens further ones to an origin with advice. The targets of
the attackers are served by one thread: thousands of connections, each of which sends without end, reads nothing, or
sends back what it receives.
"""

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil

from tests.e2e.programs import PATIENCE
from tests.e2e.proxy_setup import Client, Proxy, origin_running, proxy

GROWTH = 96 << 20
"""Bytes that the process may grow by during an attack."""
POUR, SILENT, HELLO = b"p", b"s", b"\x16"
PIECE = b"x" * (1 << 18)


def address(number: int) -> str:
    """Return the address of a client, for any number of clients."""
    return f"127.{70 + number // 62_500}.{number // 250 % 250 + 1}.{number % 250 + 1}"


class Targets:
    """Targets in one thread: a connection whose first byte is `POUR` is sent data without end, one with `SILENT` is
    not read, others are echoed.

    Connections with TLS, such as fetches of advice, are closed or, with `holds`, never answered.
    """

    def __init__(self) -> None:
        self.holds = False
        self.poured: dict[int, int] = {}
        """Bytes, by the number of the connection."""
        self.taken = 0
        """Connections that were accepted."""
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listening.settimeout(0)
        self.port: int = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ, 0)
        self._unanswered: list[socket.socket] = []
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Close the connections that wait for an answer, and hold no further ones."""
        self.holds = False
        while self._unanswered:
            self._unanswered.pop().close()

    def close(self) -> None:
        """Close all connections."""
        self._is_closing = True
        self._thread.join(PATIENCE)
        for sock in [*self._unanswered, *[key.fileobj for key in self._selector.get_map().values()]]:
            assert isinstance(sock, socket.socket)
            sock.close()
        self._selector.close()

    def _serve(self) -> None:
        while not self._is_closing:
            for key, _ in self._selector.select(0.05):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._listening:
                    self._accept()
                else:
                    with suppress(BlockingIOError):
                        self._continue(sock, key.data)

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                sock, _ = self._listening.accept()
                sock.settimeout(0)
                self.taken += 1
                self._selector.register(sock, selectors.EVENT_READ, self.taken)

    def _continue(self, sock: socket.socket, number: int) -> None:
        try:
            if number in self.poured:
                self.poured[number] += sock.send(PIECE)
                return
            piece = sock.recv(1 << 16)
            begun = piece[:1]
            if begun == POUR:
                self.poured[number] = 0
                self._selector.modify(sock, selectors.EVENT_WRITE, number)
            elif begun == SILENT or (begun == HELLO and self.holds):
                self._selector.unregister(sock)
                self._unanswered.append(sock)
            elif begun in {b"", HELLO}:
                self._hang_up(sock)
            else:
                sock.send(piece)
        except ConnectionError:
            self._hang_up(sock)

    def _hang_up(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        sock.close()


class AttackedProxy:
    """A proxy under attack. `targets` are at `to`; clients are closed at the end."""

    def __init__(self, proxy: Proxy, targets: Targets) -> None:
        self.proxy = proxy
        self.targets = targets
        self.to = f"www.example.net:{targets.port}"
        self.kept: list[Client | socket.socket] = []
        self.echoes = self.opened = 0
        """What the bystander received, and how many tunnels it opened."""
        self.failure: Exception | None = None
        """The error that ended the bystander."""
        self._process = psutil.Process(proxy.program.process.pid)
        self.before = self.most = self._process.memory_info().rss
        """Bytes that the process had in memory when the attack began, and at most."""
        self._is_over = False
        self._threads = [threading.Thread(target=run) for run in (self._run_bystander, self._measure)]

    def client(self, number: int = 0) -> Client:
        """Connect from the address of that number, until the end."""
        client = self.proxy.client(source=address(number))
        self.kept.append(client)
        return client

    def connect(self, number: int = 0) -> socket.socket:
        """Connect in the same way, without a TLS handshake."""
        sock = socket.create_connection(("127.0.0.1", self.proxy.port), PATIENCE, source_address=(address(number), 0))
        self.kept.append(sock)
        return sock

    def begin(self) -> None:
        """Start the bystander, and return when it has been served."""
        for thread in self._threads:
            thread.start()
        self.wait()
        self.before = self.most = self._process.memory_info().rss

    def wait(self) -> None:
        """Wait until the bystander has been served three times more."""
        echoes, opened = self.echoes + 3, self.opened + 3
        self.proxy.program.until(
            lambda: self.failure or (self.echoes >= echoes and self.opened >= opened), "service for others"
        )
        if self.failure:
            raise self.failure

    def end(self) -> None:
        """Stop the bystander and the measurement, and close all clients."""
        self._is_over = True
        for thread in self._threads:
            thread.join(PATIENCE)
        for one in self.kept:
            (one.sock if isinstance(one, Client) else one).close()

    def _run_bystander(self) -> None:
        to = f"www.example.org:{self.proxy.origin.port}"
        try:
            with self.proxy.client(source="127.66.0.1") as client:
                assert client.ask(to).status == 200
                while not self._is_over:
                    assert client.echoes()
                    self.echoes += 1
                    with self.proxy.client(source="127.66.0.2") as other:
                        assert other.ask(to).status == 200
                        assert other.echoes()
                    self.opened += 1
                    time.sleep(0.02)
        except Exception as error:
            self.failure = error

    def _measure(self) -> None:
        while not self._is_over:
            self.most = max(self.most, self._process.memory_info().rss)
            time.sleep(0.02)


@contextmanager
def attacked_proxy(folder: Path, *flags: object, tls: bool) -> Iterator[AttackedProxy]:
    """Run a proxy for an attack; check at its end that its memory grew little, and that the bystander was served."""
    with origin_running() as origin, closing(Targets()) as targets:
        own = ["--allow-port", targets.port, "--unreachable", "permit"]
        with proxy(folder, *own, *flags, origin=origin, tls=tls) as running:
            attacked = AttackedProxy(running, targets)
            try:
                attacked.begin()
                yield attacked
                attacked.wait()
            finally:
                attacked.end()
            assert attacked.failure is None
            assert attacked.most - attacked.before < GROWTH
            assert "internal error" not in running.program.said()
            assert "Traceback" not in running.program.said()
