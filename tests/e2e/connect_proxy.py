"""A proxy on loopback that leads every host to one origin: hosts that do not exist can be reached through it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Where it listens, and what it was asked."""

    def __init__(self, listening: socket.socket, target: int) -> None:
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.heads: list[bytes] = []
        """The heads of the CONNECTs."""
        self.statuses: list[int] = []
        """What the next CONNECTs are answered with; 200 where there are no more."""
        self._listening = listening
        self._target = target
        self._sockets: list[socket.socket] = []

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._sockets.append(client)
                threading.Thread(target=self._tunnel, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Close everything."""
        for each in (self._listening, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _tunnel(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = client.recv(65_536)
            if not chunk:
                return
            head += chunk
        self.heads.append(head)
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            client.sendall(b"HTTP/1.1 %d Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
            client.close()
            return
        origin = socket.create_connection(("127.0.0.1", self._target))
        self._sockets.append(origin)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=_copy, args=(client, origin), daemon=True).start()
        _copy(origin, client)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def proxying(target: int) -> Iterator[Proxy]:
    """Run a proxy whose every tunnel leads to a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = Proxy(listening, target)
        accepting = threading.Thread(target=proxy.serve)
        accepting.start()
        try:
            yield proxy
        finally:
            proxy.close()
            accepting.join()
