"""`headgate proxy` as its own process, an origin for it on every name, and a client that says CONNECT.

The origin has one port: connections that begin like TLS get advice or a page, all others are echoed.
"""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import trustme

from tests.e2e.programs import PATIENCE, Program, headgate

ADVICE = "/.well-known/traffic-advice"
NAMES = ("*.example.com", "*.example.net", "*.example.org", "localhost", "127.0.0.1")


class Answer(NamedTuple):
    """The response to a client: fields by their names in lower case."""

    status: int
    fields: dict[str, str]

    @property
    def reason(self) -> str:
        """The word in `Proxy-Status`."""
        return self.fields["proxy-status"].rpartition('details="')[2].removesuffix('"')


class Origin:
    """See the module. `asked` has the heads of requests, `names` the server names of TLS connections, and `echoed`
    counts the connections without TLS.
    """

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.asked: list[str] = []
        self.echoed = 0
        self.names: list[str] = []
        self.answers: dict[str, bytes] = {}
        """Whole responses, by host or by host and path; by default there is no advice, 404, and a small page."""
        self.hold: threading.Event | None = None
        """Awaited before a request is answered; `held` says which path."""
        self.held = ADVICE
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.sni_callback = lambda _connection, name, _context: self.names.append(name or "")
        self.authority.issue_cert(*NAMES).configure_cert(self._tls)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def advise(self, host: str, *entries: dict[str, Any], **answer: Any) -> None:
        """Give traffic advice for a host."""
        self.answer(host, body=json.dumps(entries), content_type="application/trafficadvice+json", **answer)

    def answer(self, host: str, *, status: int = 200, body: str = "", **fields: object) -> None:
        """Answer the question for a host's advice so."""
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
        self.answers[host] = "\r\n".join([*lines, "", body]).encode()

    def url(self, host: str, path: str = "/") -> str:
        """Return the URL of a page."""
        return f"https://{host}:{self.port}{path}"

    def refer(self, host: str, *targets: str) -> str:
        """Publish a page that has a browser prefetch these URLs through its proxy at once; return its URL."""
        requires = ["anonymous-client-ip-when-cross-origin"]
        rules = {"prefetch": [{"urls": targets, "eagerness": "immediate", "requires": requires}]}
        path = f"/refer/{len(self.answers)}"
        self._publish(host + path, f'<script type="speculationrules">{json.dumps(rules)}</script>')
        return self.url(host, path)

    def paths(self, host: str) -> list[str]:
        """Return the requested paths of a host, in order."""
        return [head.split(" ", 2)[1] for head in self.asked if f"\r\nhost: {host}:" in head.lower()]

    def _publish(self, where: str, content: str) -> None:
        """Publish a page that must not be stored, so that each visit is a request; it has no icon to fetch."""
        head = '<!doctype html><meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,">'
        self.answer(where, body=head + content, content_type="text/html", cache_control="no-store")

    def distrusted(self) -> None:
        """Show an untrusted certificate from now on."""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert(*NAMES).configure_cert(self._tls)

    def close(self) -> None:
        """Stop accepting; what is under way ends with its connection."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, suppress(OSError):
            sock.settimeout(PATIENCE * 3)
            if sock.recv(1, socket.MSG_PEEK) == b"\x16":
                self._advise(sock)
                return
            self.echoed += 1
            while piece := sock.recv(1 << 16):
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)

    def _advise(self, sock: socket.socket) -> None:
        with self._tls.wrap_socket(sock, server_side=True) as tls:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (piece := tls.recv(4096)):
                    return  # Chromium opens connections that it does not use
                head += piece
            text = head.decode("latin-1")
            self.asked.append(text)
            path = text.split(" ", 2)[1]
            if self.hold is not None and path == self.held:
                self.hold.wait(PATIENCE)
            host = text.lower().partition("\r\nhost: ")[2].partition(":")[0]
            if path != ADVICE and not self.answers.keys() & {host, host + path}:
                self._publish(host + path, f"<p>{path}</p>")
            none = b"HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            tls.sendall(self.answers.get(host + path) or self.answers.get(host, none))


@contextmanager
def origin_running() -> Iterator[Origin]:
    """Run an origin."""
    origin = Origin()
    try:
        yield origin
    finally:
        origin.close()


class Client:
    """A connection to a proxy; `tls` is a context, or None for plaintext; `source` an address to come from."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(source, 0))
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, authority: str, *, method: str = "CONNECT", more: str = "", version: str = "1.1") -> Answer:
        """Ask for a tunnel, or whatever `method` is for; give the answer."""
        host = "proxy.example" if authority.startswith("/") else authority
        self.send(f"{method} {authority} HTTP/{version}\r\nHost: {host}\r\n{more}\r\n".encode())
        return self.answer()

    def send(self, piece: bytes) -> None:
        """Send bytes."""
        self.sock.sendall(piece)

    def answer(self) -> Answer:
        """Read a head."""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self.sock.recv(1 << 16) or self._fail()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, _, rest = head.partition(b"\r\n")
        fields = dict(line.split(": ", 1) for line in rest.decode("latin-1").splitlines())
        return Answer(int(first.split()[1]), {name.lower(): value for name, value in fields.items()})

    def read(self, count: int) -> bytes:
        """Read so many bytes."""
        while len(self._buffer) < count:
            self._buffer += self.sock.recv(1 << 16) or self._fail()
        piece, self._buffer = self._buffer[:count], self._buffer[count:]
        return piece

    def read_to_end(self) -> bytes:
        """Read until the other side ends."""
        with suppress(ConnectionError):
            while piece := self.sock.recv(1 << 16):
                self._buffer += piece
        return self._buffer

    def echoes(self, piece: bytes = b"hello") -> bool:
        """Whether what is sent comes back."""
        self.send(piece)
        return self.read(len(piece)) == piece

    def _fail(self) -> NoReturn:
        raise AssertionError(f"the connection ended after {self._buffer!r}")


def sources(count: int) -> list[str]:
    """Addresses of loopback to come from: each is a client of its own."""
    return [f"127.0.{number // 250 + 1}.{number % 250 + 1}" for number in range(count)]


class Proxy:
    """A running proxy, and the origin that all names lead to."""

    def __init__(self, program: Program, origin: Origin, tls: ssl.SSLContext | None) -> None:
        self.program = program
        self.origin = origin
        self.tls = tls

    @cached_property
    def port(self) -> int:
        """Where it listens."""
        return self.program.port

    def client(self, **options: Any) -> Client:
        """Connect to it."""
        return Client(self.port, **{"tls": self.tls, **options})

    def ask(self, host: str = "www.example.org", port: int | None = None, **options: Any) -> Answer:
        """Ask for a tunnel on a connection of its own; give the answer."""
        how = {name: options.pop(name) for name in ("source", "tls") if name in options}
        with self.client(**how) as client:
            return client.ask(f"{host}:{port or self.origin.port}", **options)

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log that are JSON."""
        return [json.loads(line) for line in self.program.said().splitlines() if line.startswith("{")]

    def metrics(self) -> dict[str, float]:
        """The samples of /metrics that are the proxy's, by name and labels as they are written."""
        lines = [line for line in self.program.admin("/metrics").splitlines() if line.startswith("headgate_proxy")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def wait_for(self, **numbers: float) -> None:
        """Wait until metrics have these values: `tunnels=0`."""
        wanted = {f"headgate_proxy_{name}": value for name, value in numbers.items()}
        self.program.until(lambda: wanted.items() <= self.metrics().items(), f"{wanted}")


@contextmanager
def proxy(
    folder: Path, *arguments: object, origin: Origin | None = None, tls: bool = True, admin: bool = True, **how: Any
) -> Iterator[Proxy]:
    """Run a proxy that every name leads from to the origin, on ports the system chooses, until it is ready.

    `how` is for `programs.headgate`.
    """
    with ExitStack() as stack:
        origin = origin or stack.enter_context(origin_running())
        ca = folder / "ca.pem"
        origin.authority.cert_pem.write_to_path(str(ca))
        words: list[object] = ["--listen", "127.0.0.1:0", "--advice-ca", ca, "--allow-port", origin.port]
        words += ["--allow-address", "127.0.0.0/8", "--resolve", "*=127.0.0.1"]
        context = None
        if admin:
            words += ["--admin", "127.0.0.1:0"]
        if tls:
            cert, key = folder / "proxy.pem", folder / "proxy.key"
            issued = origin.authority.issue_cert("localhost", "127.0.0.1")
            issued.cert_chain_pems[0].write_to_path(str(cert))
            issued.private_key_pem.write_to_path(str(key))
            words += ["--cert", cert, "--key", key]
            context = ssl.create_default_context()
            origin.authority.configure_trust(context)
            context.set_alpn_protocols(["http/1.1"])
        else:
            words += ["--plaintext"]
        running = stack.enter_context(headgate(folder, "proxy", *words, *arguments, **how))
        assert running.ready
        yield Proxy(running, origin, context)
