"""`headgate` as its own process, and an origin for it that remembers what it saw."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PATIENCE = 20.0  # seconds; only ever reached by a failing test


class Program:
    """A running `headgate`."""

    def __init__(self, process, log, out):
        self.process = process
        self.log = log
        self.out = out

    def said(self):
        """What it has written to stderr so far."""
        return self.log.read_text()

    def wait_for(self, pattern):
        """Return the match of a line on stderr, once there is one."""
        return self.until(lambda: re.search(pattern, self.said(), re.MULTILINE), f"{pattern!r}")

    def until(self, found, what):
        """Return what `found` gives as soon as that is true."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            value = found()
            if value:
                return value
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.said()}"
            time.sleep(0.01)
        raise AssertionError(f"no {what}: {self.said()}")

    def end(self, number=signal.SIGTERM):
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    @property
    def ready(self):
        """What was said before it was ready, by name; `address` is what is ready."""
        address = self.wait_for(r"^ready (\S+)$")[1]
        words = re.search(r"^headgate: (.*)\nready ", self.said(), re.MULTILINE)[1].split()
        return {"address": address, **dict(zip(words[::2], words[1::2], strict=True))}

    @property
    def port(self):
        """The port of the address that is ready."""
        return int(self.ready["address"].rpartition(":")[2])

    def get(self, path="/", method="GET", body=None, **fields):
        """Ask the gate, on a connection of its own; return the response with its body read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in fields.items()})
            response = connection.getresponse()
            response.body = response.read()
            return response
        finally:
            connection.close()

    def statuses(self, count, path="/", **fields):
        """Ask so many times, one after another; return the statuses."""
        return [self.get(path, **fields).status for _ in range(count)]

    def admin(self, path):
        """Ask the admin listener; return the text."""
        with urllib.request.urlopen(self.ready["admin"] + path, timeout=PATIENCE) as response:
            return response.read().decode()

    def state(self):
        """Return the value of /api/state."""
        return json.loads(self.admin("/api/state"))

    def totals(self, name="default"):
        """Return accepted, delayed and rejected of a domain."""
        (domain,) = [domain for domain in self.state()["domains"] if domain["name"] == name]
        return domain["accepted"], domain["delayed"], domain["rejected"]

    def children(self):
        """Process ids of its workers."""
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for listed in lists for pid in listed.read_text().split()]


@contextmanager
def headgate(folder, *arguments, environment=None, err=None, module="headgate"):
    """Run `headgate` with these arguments in an empty folder; ended, however the test ends.

    With `err` its stderr is that socket, and `Program` knows nothing of what it says. `module` is run in its place.
    """
    number = len(list(folder.glob("headgate-*.err")))
    log, out = folder / f"headgate-{number}.err", folder / f"headgate-{number}.out"
    with log.open("wb") as written, out.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=err or written,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder), **(environment or {})},
        )
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
def gate(folder, *arguments):
    """Run `headgate serve` on ports the system chooses; comes back when it is ready."""
    with headgate(folder, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *arguments) as running:
        assert running.ready
        yield running


def peak_memory(*command):
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


def refused(folder, *arguments):
    """Run `headgate` where it must refuse; return its exit code and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "headgate", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stderr


class Origin:
    """An HTTP server that answers 200 and remembers the requests; `hold` makes it wait before it answers /slow."""

    def __init__(self):
        origin = self
        self.seen = []
        self.hold = threading.Event()
        self.arrived = threading.Event()

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                origin.seen.append(self.path)
                if self.path == "/slow":
                    origin.arrived.set()
                    origin.hold.wait(PATIENCE)
                self.send_response(200)
                self.send_header("Content-Length", "3")
                self.end_headers()
                self.wfile.write(b"ok\n")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def origin():
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
