"""nginx without Lua in front of an origin, with a sidecar and a master, all of them as an operator starts them."""

import hashlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil

from headgate.observe.state import identifier_digest
from tests.e2e import programs
from tests.e2e.programs import PATIENCE, Answer, request
from tests.servers import find_program, free_port, wait_for


class Answers(BaseHTTPRequestHandler):
    """Answers `/STATUS` with that status, any other path with 200, and a body with its digest; echoes a WebSocket."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one write: a second one would wait for an acknowledgement
    seen: ClassVar[list[str]] = []

    def handle_request(self) -> None:
        """Answer a request of any method."""
        self.seen.append(f"{self.command} {self.path}")
        if self.headers.get("Upgrade") == "websocket":
            self.echo()
            return
        status = int(self.path[1:4]) if self.path[1:4].isdigit() else 200
        body = hashlib.sha256(self.read_body()).hexdigest().encode()
        if status in {204, 304}:
            body = b""
        self.send_response(status)
        if body:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Origin", "yes")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        self.handle_request()

    def do_POST(self) -> None:
        self.handle_request()

    def do_HEAD(self) -> None:
        self.handle_request()

    def read_body(self) -> bytes:
        """Return the body of the request, chunked or with its length."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def echo(self) -> None:
        """Switch protocols and send back a line."""
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
        self.wfile.flush()
        self.wfile.write(b"echo " + self.rfile.readline())
        self.wfile.flush()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def running_origin() -> Iterator[tuple[str, list[str]]]:
    """Run an origin in a thread; give its URL and the requests that it has seen."""

    class Own(Answers):
        seen: ClassVar[list[str]] = []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", Own.seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def printed(folder: Path, port: int, origin: str, *options: object, host: str = "127.0.0.1") -> str:
    """Return the configuration that the command prints."""
    command = ["sidecar", "--print-conf", "auth-request", "--listen", f"{host}:{port}", "--origin", origin, *options]
    done = subprocess.run(
        [sys.executable, "-m", "headgate", *map(str, command)], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Nginx:
    """A running nginx."""

    def __init__(self, folder: Path, port: int, text: str, *, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = port
        self.log = folder / "nginx.log"
        self._file = folder / "nginx.conf"
        self._folder = folder
        self._file.write_text(text)
        self.start()

    def start(self) -> None:
        """Start it; comes back when it listens."""
        # The log before a configuration is read would be a file that only root may write.
        words = ["-p", self._folder, "-e", "stderr", "-c", self._file]
        command = [find_program("nginx") or "nginx", *map(str, words)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(self.port, self.process, host=self.host)

    def workers(self) -> set[int]:
        """Return the process ids of its workers, also of those that are about to end; others keep its cache."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children()
            return {child.pid for child in children if "worker process" in " ".join(child.cmdline())}
        return set()

    def reload(self) -> None:
        """Have it read its configuration again; comes back when its old workers have ended."""
        before, deadline = self.workers(), time.monotonic() + PATIENCE
        self.process.send_signal(signal.SIGHUP)
        while before & self.workers() or not self.workers():
            assert time.monotonic() < deadline, "the old workers do not end"
            time.sleep(0.01)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it and its workers."""
        children = psutil.Process(self.process.pid).children()
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        for child in children if number == signal.SIGKILL else ():
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, PATIENCE)

    def get(self, path: str = "/", method: str = "GET", body: Any = None, **fields: str) -> Answer:
        """Ask on a connection of its own; return the response with its body read."""
        return request(self.port, path, method, host=self.host, body=body, **fields)

    def statuses(self, number: int, path: str = "/", **fields: str) -> Counter[int]:
        """Send so many requests one after another; count the statuses of their responses."""
        return Counter(self.get(path, **fields).status for _ in range(number))

    def send(self, request: bytes) -> bytes:
        """Send bytes; return all that is received until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as client:
            client.sendall(request)
            return b"".join(iter(lambda: client.recv(65_536), b""))

    def errors(self) -> list[str]:
        """Return the lines of its log."""
        return self.log.read_text(errors="replace").splitlines()


class System:
    """An origin, a master, a sidecar and nginx. Options of the sidecar are also those of the configuration."""

    def __init__(self, stack: ExitStack, folder: Path, rule: str, *options: object, **parts: str) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self.options = options
        self._stack = stack
        self._rule = rule
        self.origin, self.seen = stack.enter_context(running_origin())
        self._master_port = free_port()
        self.start_master()
        self.start_sidecar()
        port = free_port()
        text = printed(folder, port, self.origin, "--domain", "api", "--socket", self.socket, *options)
        for old, new in parts.items():
            marks = {"server": "        client_max_body_size 0;\n", "workers": "worker_processes auto;"}
            assert marks[old] in text
            text = text.replace(marks[old], marks[old] + new if old == "server" else new)
        self.nginx = Nginx(folder, port, text)
        stack.callback(self.nginx.stop)

    def start_master(self) -> None:
        """Start the master, at the same address each time."""
        words = ("--listen", f"127.0.0.1:{self._master_port}", "--domain", f"api={self._rule}")
        self.master = self._stack.enter_context(programs.headgate(self.folder, "master", *words))
        assert self.master.ready

    def start_sidecar(self) -> None:
        """Start the sidecar."""
        words = ("--master", f"127.0.0.1:{self._master_port}", "--domain", "api", "--auth-request", self.socket)
        self.sidecar = self._stack.enter_context(
            programs.headgate(self.folder, "sidecar", *words, "--admin", "127.0.0.1:0", *self.options)
        )
        assert self.sidecar.ready["address"] == str(self.socket)

    def counters(self) -> dict[str, Any]:
        """Return the counters of the data plane, without their common prefix."""
        return {name.removeprefix("sidecar_"): number for name, number in self.sidecar.state()["counters"].items()}

    def held(self, identifier: str) -> float:
        """Return the release time of an identifier, as the sidecar shows it; 0.0 if it is not held."""
        (domain,) = self.sidecar.state()["domains"]
        releases = {hold["identifier"]: float(hold["release"]) for hold in domain["held"]}
        return releases.get(identifier_digest(identifier.encode()), 0.0)

    def until_rejected(self, **fields: str) -> Answer:
        """Ask until the hold of the master has arrived; return the rejection."""
        return self.sidecar.until(lambda: _only(self.nginx.get(**fields), 503, 429), "rejection")


def _only(answer: Answer, *statuses: int) -> Answer | None:
    return answer if answer.status in statuses else None
