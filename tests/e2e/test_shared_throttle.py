"""One throttle in several processes: the requests that eight of them send a failing server, and killed processes."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headgate.agent import SharedThrottle

PATIENCE = 30.0  # seconds; only ever reached by a failing test
NOW = 1_763_683_200.0

CRAWLER = """
import sys
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener
from headgate.agent import Courtesy, SharedThrottle
from headgate.agent.urllib import Handler, Held
from headgate.throttle import Policy

sent = held = 0
with SharedThrottle(sys.argv[1], Policy(initial_backoff=300.0), hold_localhost=True) as throttle:
    opener = build_opener(ProxyHandler({}), Handler(Courtesy(throttle=throttle)))
    for _ in range(5):
        try:
            opener.open(sys.argv[2], timeout=20).close()
        except HTTPError as error:
            error.close()
            sent += 1
        except Held:
            held += 1
    print(sent, held, throttle.trouble or "fine")
"""

WRITER = f"""
import os, sys
from headgate.agent import SharedThrottle
throttle = SharedThrottle(sys.argv[1])
for number in range(100_000):
    throttle.response_received(f"http://{{number}}.{{sys.argv[2]}}.example/", 503, {{"Retry-After": "9"}}, now={NOW})
    os.write(1, b"." if not throttle.trouble else b"?")
"""


@pytest.fixture
def failing():
    """Run a server that fails every request; give its URL and what it has seen."""
    seen = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/x", seen
        server.shutdown()
        thread.join()


def test_the_failures_of_one_process_hold_all(tmp_path, failing):
    url, seen = failing
    command = [sys.executable, "-c", CRAWLER, str(tmp_path / "file"), url]
    first = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(7)]
    others = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    assert first.stdout == "3 2 fine\n"
    assert others == ["0 5 fine\n"] * 7
    assert len(seen) == 3


def test_killed_processes_lose_no_hold_that_they_have_written(tmp_path):
    path = tmp_path / "file"
    with SharedThrottle(path) as survivor:
        for name in "abcdef":
            process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE)
            written = process.stdout.read(50 * (1 + ord(name) - ord("a")))
            process.kill()
            process.communicate(timeout=PATIENCE)
            assert set(written) == set(b".")
            held = [
                survivor.release_time(f"http://{number}.{name}.example/", now=NOW) for number in range(len(written))
            ]
            assert held == [NOW + 9] * len(written)
            assert survivor.trouble == ""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
