"""`headgate` as its own process, and an origin for it that remembers what it saw."""

import contextlib
import http.client
import io
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from headgate.cli import main
from tests.forked import Forked

PATIENCE = 60.0  # seconds; only ever reached by a failing test

Found = TypeVar("Found")


_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (\w+) headgate: ", re.MULTILINE)
_WORDS = {"warning": "headgate: warning: "}


class Answer(NamedTuple):
    """A response with its body read."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def getheader(self, name: str) -> str | None:
        """Return the value of a field, None if it is missing."""
        return self.headers.get(name)


def request(
    port: int, path: str = "/", method: str = "GET", *, host: str = "127.0.0.1", body: Any = None, **fields: str
) -> Answer:
    """Send a request on a connection of its own; return the response with its body read.

    An underscore in the name of a field stands for a hyphen.
    """
    names = {name.replace("_", "-"): value for name, value in fields.items()}
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, names, encode_chunked=names.get("Transfer-Encoding") == "chunked")
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


class Program:
    """A running `headgate`."""

    def __init__(self, process: Forked, log: Path, out: Path) -> None:
        self.process = process
        self.log = log
        self.out = out

    def said(self) -> str:
        """What it has written to stderr so far, without the times of its lines."""
        return _STAMP.sub(lambda stamp: _WORDS.get(stamp[1], "headgate: "), self.log.read_text())

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """Return the match of a line on stderr, once there is one."""
        return self.until(lambda: re.search(pattern, self.said(), re.MULTILINE), f"{pattern!r}")

    def until(self, found: Callable[[], Found | None], what: str) -> Found:
        """Return what `found` gives as soon as that is true."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            value = found()
            if value:
                return value
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.said()}"
            time.sleep(0.01)
        raise AssertionError(f"no {what}: {self.said()}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    @property
    def ready(self) -> dict[str, str]:
        """What was said before it was ready, by name; `address` is what is ready."""
        address = self.wait_for(r"^ready (\S+)$")[1]
        line = re.search(r"^headgate: (.*)\nready ", self.said(), re.MULTILINE)
        assert line is not None
        words = line[1].split()
        return {"address": address, **dict(zip(words[::2], words[1::2], strict=True))}

    @property
    def port(self) -> int:
        """The port of the address that is ready."""
        return int(self.ready["address"].rpartition(":")[2])

    def get(self, path: str = "/", method: str = "GET", body: Any = None, **fields: str) -> Answer:
        """Ask the gate, on a connection of its own; return the response with its body read."""
        return request(self.port, path, method, body=body, **fields)

    def statuses(self, count: int, path: str = "/", **fields: str) -> list[int]:
        """Ask so many times, one after another; return the statuses."""
        return [self.get(path, **fields).status for _ in range(count)]

    def admin(self, path: str) -> str:
        """Ask the admin listener; return the text."""
        with urllib.request.urlopen(self.ready["admin"] + path, timeout=PATIENCE) as response:
            content: bytes = response.read()
        return content.decode()

    def readyz(self) -> str:
        """Return what /readyz says, whatever the status."""
        try:
            return self.admin("/readyz")
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def metrics(self) -> dict[str, float]:
        """Return the samples of /metrics, each by its name and the values of its labels, in their order."""
        families = text_string_to_metric_families(self.admin("/metrics"))  # type: ignore[no-untyped-call]  # has no types
        samples = (sample for family in families for sample in family.samples)
        return {
            " ".join([sample.name, *(value for _, value in sorted(sample.labels.items()))]): sample.value
            for sample in samples
        }

    def state(self) -> Any:
        """Return the value of /api/state."""
        return json.loads(self.admin("/api/state"))

    def counts(self) -> Any:
        """Return the last line of the counts that a master prints with --json; nothing before the first."""
        lines = self.out.read_text().splitlines()
        return json.loads(lines[-1]) if lines else {}

    def totals(self, name: str = "default") -> tuple[int, int, int]:
        """Return accepted, delayed and rejected of a domain."""
        (domain,) = [domain for domain in self.state()["domains"] if domain["name"] == name]
        return domain["accepted"], domain["delayed"], domain["rejected"]

    def children(self) -> list[int]:
        """Process ids of its workers."""
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for listed in lists for pid in listed.read_text().split()]


@contextmanager
def headgate(
    folder: Path, *arguments: object, err: int | None = None, files: tuple[int, int] | None = None
) -> Iterator[Program]:
    """Run `headgate` with these arguments in an empty folder; ended, however the test ends.

    With `err` its stderr is that descriptor, and `Program` knows nothing of what it says. `files` are its limits of
    open files, soft and hard.
    """
    number = len(list(folder.glob("headgate-*.err")))
    log, out = folder / f"headgate-{number}.err", folder / f"headgate-{number}.out"
    with log.open("wb") as written, out.open("wb") as output:
        process = Forked(arguments, folder, output.fileno(), written.fileno() if err is None else err, files=files)
    try:
        yield Program(process, log, out)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def gate(folder: Path, *arguments: object) -> Iterator[Program]:
    """Run `headgate serve` on ports the system chooses; comes back when it is ready."""
    with headgate(folder, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *arguments) as running:
        assert running.ready
        yield running


def peak_memory(*command: object) -> tuple[int, float]:
    """Run a command in a process of its own; return its exit code and the most memory it ever had, in MB."""
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    words = [sys.executable, "-c", code, *map(str, command)]
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=True)
    returncode, kilobytes = map(int, done.stdout.split())
    return returncode, kilobytes / 1024


class Ran(NamedTuple):
    """How a command ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def command(*arguments: object, folder: Path | None = None, stdin: str = "") -> Ran:
    """Run a short command of `headgate` in this process, in a folder, as the program would end.

    Its process would take several times as long as the command itself. tests/unit/cli/test_program.py has what a
    process adds: its standard streams and exit codes.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with (
        contextlib.chdir(folder or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")),
    ):
        try:
            main([*map(str, arguments)])
        except SystemExit as ended:
            code = ended.code
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
    assert isinstance(code, int)
    return Ran(code, out.read(), err.read())


def refused(folder: Path, *arguments: object) -> tuple[int, str]:
    """Run `headgate` where it must refuse; return its exit code and what it said."""
    with headgate(folder, *arguments) as program:
        return program.process.wait(PATIENCE), program.said()


class Origin:
    """An HTTP server that answers 200, to a request for /500 with that status, and remembers the requests.

    `hold` makes it wait before it answers /slow; it closes the connection of a request for /close.
    """

    def __init__(self) -> None:
        origin = self
        self.seen: list[str] = []
        self.hold = threading.Event()
        self.arrived = threading.Event()

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                origin.seen.append(self.path)
                if self.path == "/close":
                    self.close_connection = True
                    return
                if self.path == "/slow":
                    origin.arrived.set()
                    origin.hold.wait(PATIENCE)
                self.send_response(int(self.path[1:]) if self.path[1:].isdecimal() else 200)
                self.send_header("Content-Length", "3")
                self.end_headers()
                self.wfile.write(b"ok\n")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def origin() -> Iterator[Origin]:
    """Run an origin in a thread."""
    running = Origin()
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        running.hold.set()
        running.server.shutdown()
        running.server.server_close()
        thread.join()
