"""An origin on loopback, in threads, for agents of any library: it answers as its test says, and records the requests.

What is said for a path is said in that order, the last of it from then on; where nothing is said, all is well.
"""

import http.client
import socket
import socketserver
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ADVICE = "/.well-known/traffic-advice"


class Asked(NamedTuple):
    """A request that came."""

    method: str
    path: str
    fields: http.client.HTTPMessage
    body: bytes
    connection: int
    at: float


class Answer(NamedTuple):
    """What is answered; no status at all is a connection that is closed.

    A body in several pieces is chunked, unless there is a Content-Length.
    """

    status: int | None = 200
    fields: Mapping[str, str] = {}
    body: bytes | Iterable[bytes] = b"hello"


class Origin:
    """The origin; made by `running`."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self.open: set[socket.socket] = set()
        self._said: dict[str, deque[Answer]] = {}
        self._lock = threading.Lock()
        self.server = _Server((host, 0), _Connection)
        self.server.origin = self
        self.server.tls = tls
        self.url = f"{'https' if tls else 'http'}://{host}:{self.server.server_address[1]}"

    def say(self, path: str, *answers: Answer | int) -> None:
        """Answer the next requests for a path with these, one each."""
        self._said[path] = deque(answer if isinstance(answer, Answer) else Answer(answer) for answer in answers)

    def advise(self, text: str) -> None:
        """Serve traffic advice."""
        self.say(ADVICE, Answer(200, {"Content-Type": "application/trafficadvice+json"}, text.encode()))

    def got(self, path: str | None = None) -> list[Asked]:
        """What came for a path, or for all of them but the advice's."""
        return [asked for asked in self.asked if (asked.path != ADVICE if path is None else asked.path == path)]

    def answer(self, asked: Asked) -> Answer:
        """Take note of a request, and give what is to be answered."""
        with self._lock:
            self.asked.append(asked)
            said = self._said.get(asked.path)
            if not said:
                return Answer(404 if asked.path == ADVICE else 200)
            return said.popleft() if len(said) > 1 else said[0]


@contextmanager
def running(*, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Origin]:
    """Run an origin until all its connections are closed."""
    origin = Origin(tls=tls, host=host)
    accepting = threading.Thread(target=origin.server.serve_forever, kwargs={"poll_interval": 0.01})
    accepting.start()
    try:
        yield origin
    finally:
        origin.server.shutdown()
        accepting.join()
        for connection in list(origin.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        origin.server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 128
    origin: Origin
    tls: ssl.SSLContext | None

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        if self.tls is not None:
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self.origin.connections += 1
        self.origin.open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self.origin.open.discard(request)
        super().shutdown_request(request)


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        number = self.server.origin.connections
        with suppress(OSError):
            while self._answer_one(number):
                pass

    def _answer_one(self, number: int) -> bool:
        line = self.rfile.readline(65_536).split()
        if len(line) != 3:
            return False
        fields = http.client.parse_headers(self.rfile)
        if fields.get("Expect"):
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        target = urlsplit(line[1].decode())
        answer = self.server.origin.answer(
            Asked(line[0].decode(), target.path, fields, self._body(fields), number, time.time())
        )
        if answer.status is None:
            return False
        self._write(answer, line[0] == b"HEAD")
        return fields.get("Connection", "").lower() != "close"

    def _body(self, fields: http.client.HTTPMessage) -> bytes:
        if "chunked" not in fields.get("Transfer-Encoding", ""):
            return self.rfile.read(int(fields.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _write(self, answer: Answer, headless: bool) -> None:
        pieces = [answer.body] if isinstance(answer.body, bytes) else answer.body
        chunked = not isinstance(answer.body, bytes) and "Content-Length" not in answer.fields
        lines = [f"HTTP/1.1 {answer.status} Said", *(f"{name}: {value}" for name, value in answer.fields.items())]
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        elif isinstance(answer.body, bytes):
            lines.append(f"Content-Length: {len(answer.body)}")
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if headless:
            return
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
