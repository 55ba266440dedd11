"""One throttle in several processes: the requests that eight of them send a failing server, and a killed process."""

import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headgate.agent import SharedThrottle
from tests.e2e.sharing_worker import NOW, POLICY

PATIENCE = 30.0  # seconds; only ever reached by a failing test
WORKERS = 8
X = "http://www.example.com/x"


class Worker:
    """A process of `sharing_worker.py`."""

    def __init__(self, path):
        script = Path(__file__).with_name("sharing_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def told(self):
        """Return the next line that it writes, in words."""
        return self.process.stdout.readline().split()

    def tell(self, verb, url, times=1):
        """Have it do something, without waiting until it has."""
        self.process.stdin.write(f"{verb} {url} {times}\n")
        self.process.stdin.flush()

    def do(self, verb, url, times=1):
        """Have it do something; return the numbers that it answers, and see that nothing is the matter."""
        self.tell(verb, url, times)
        return self.answer()

    def answer(self):
        *numbers, trouble = self.told()
        assert trouble == "fine"
        return [int(number) for number in numbers]

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


@contextmanager
def working(path, count=WORKERS):
    """Run processes that share a file; comes back when all are ready."""
    workers = []
    try:
        workers.extend(Worker(path) for _ in range(count))
        assert [worker.told() for worker in workers] == [["ready"]] * count
        yield workers
        assert [worker.end() for worker in workers] == [0] * count
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.kill()
            worker.process.wait()
            for pipe in (worker.process.stdin, worker.process.stdout):
                pipe.close()


class Failing:
    """A server that counts its requests and fails them all."""

    def __init__(self):
        self.seen = 0
        lock, failing = threading.Lock(), self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self):
                with lock:
                    failing.seen += 1
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/x"


@pytest.fixture
def failing():
    server = Failing()
    thread = threading.Thread(target=server.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.server.shutdown()
    server.server.server_close()
    thread.join()


def checked(path):
    """Return the failures of X in the file, after seeing that the file is whole."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with SharedThrottle(path, POLICY) as throttle:
        assert throttle.synchronize(PATIENCE)
        return throttle.explain(X, now=NOW).failures


def test_eight_processes_in_turn_send_three_requests(tmp_path, failing):
    with working(tmp_path / "file") as workers:
        # The third failure is written before the fourth process asks: from then on all of them hold.
        answers = [worker.do("ask", failing.url) for _ in range(3) for worker in workers]
    assert answers == [[1, 0]] * 3 + [[0, 1]] * (3 * WORKERS - 3)
    assert failing.seen == 3


def test_no_failure_is_lost_among_processes(tmp_path):
    urls = [X, "http://www.example.com/y"]
    with working(tmp_path / "file") as workers:
        for url in urls:
            for worker in workers:
                worker.tell("fail", url, 50)
        assert [worker.answer() for _ in urls for worker in workers] == [[50]] * (2 * WORKERS)
        # So many that the release is known however they came in: it has long been at the maximum.
        assert [worker.do("failures", url) for url in urls for worker in workers] == [[50 * WORKERS]] * (2 * WORKERS)
    assert checked(tmp_path / "file") == 50 * WORKERS


def test_a_killed_process_loses_at_most_unwritten_changes(tmp_path):
    """In each round, one process is killed at a random instant while another one continues."""
    path, chance, told = tmp_path / "file", random.Random(1), 0
    with ExitStack() as stack:
        (survivor,) = stack.enter_context(working(path, 1))
        for _ in range(12):
            with killable(path) as (process, acknowledged):
                for _ in range(chance.randrange(1, 300)):
                    acknowledged()
                survivor.tell("fail", X, 20)
                process.kill()
                process.wait(PATIENCE)
                while acknowledged():
                    pass
                told += acknowledged.count + survivor.answer()[0]
            (failures,) = survivor.do("failures", X)
            assert told <= failures <= told + 1
            assert checked(path) == failures
            told = failures


@contextmanager
def killable(path):
    """Run a process that counts failures for ever, and writes a byte each time that one is in the file."""
    script = (
        "import os, sys\n"
        "from headgate.agent import SharedThrottle\n"
        "throttle = SharedThrottle(sys.argv[1])\n"
        "while True:\n"
        f"    throttle.response_received({X!r}, 503, {{}}, now={NOW})\n"
        "    if throttle.synchronize(30.0):\n"
        "        os.write(1, b'.')\n"
    )

    def acknowledged():
        byte = process.stdout.read(1)
        acknowledged.count += len(byte)
        return byte

    acknowledged.count = 0
    process = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, bufsize=0)
    try:
        yield process, acknowledged
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
