"""Servers on loopback that do what they are told to whoever connects, each connection in a thread of its own."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PATIENCE = 30.0  # seconds; only ever reached by a failing test


class Server:
    """Where a server listens, and what its connections are to know."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.over = threading.Event()
        """Set when the test is over."""
        self.failures: list[BaseException] = []


@contextmanager
def serving(script: Callable[[socket.socket, Server], None], *, host: str = "127.0.0.1") -> Iterator[Server]:
    """Run `script` for each connection; what it raises, unless the connection broke, fails the test."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        server = Server(listening.getsockname()[1])
        threads: list[threading.Thread] = []

        def run(connection: socket.socket) -> None:
            connection.settimeout(PATIENCE)
            try:
                with connection, suppress(ConnectionError):
                    script(connection, server)
            except BaseException as failure:
                server.failures.append(failure)

        def accept() -> None:
            while True:
                connection, _ = listening.accept()
                if server.over.is_set():
                    connection.close()
                    return
                threads.append(threading.Thread(target=run, args=(connection,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            server.over.set()
            socket.create_connection((host, server.port)).close()
            for thread in (accepting, *threads):
                thread.join(PATIENCE)
        assert not server.failures, server.failures
