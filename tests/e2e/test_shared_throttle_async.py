"""Event loops go on while the file of a shared throttle cannot be used: locked, full, read-only, deleted, damaged.

That is asserted by the order of events. The file is locked by another process, which gives it up when it is told to,
and that is after all requests were answered; the thread that writes waits for the lock for longer than the test may
take, and so would a request that waited for SQLite.
"""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import anyio
import anyio.lowlevel
import httpx
import httpx2
import pytest

from headgate.agent import Courtesy, SharedThrottle
from headgate.agent import shared_file as file_module
from headgate.agent import shared_store as store_module
from headgate.agent.aiohttp import Middleware
from headgate.agent.httpx import AsyncTransport
from headgate.errors import NoContact
from headgate.throttle import Policy

PATIENCE = 30.0  # seconds; only ever reached by a failing test
POLICY = Policy(initial_backoff=300.0)  # the first hold outlasts any test
LOCKING = """
import select, sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
other.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
is_told = bool(select.select([sys.stdin], [], [], float(sys.argv[2]))[0])
other.execute("ROLLBACK")
print("released" if is_told else "waited for in vain", flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def failing():
    """Return the URL of a server that fails every request."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


class Lock:
    """The file, locked by another process."""

    def __init__(self, process):
        self.process = process

    def release(self):
        """Have it released; return what the process says, and so whether it was held until now."""
        self.process.stdin.write("now\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def locked(path):
    command = [sys.executable, "-c", LOCKING, str(path), str(PATIENCE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "locked\n"
            yield Lock(process)
        finally:
            process.kill()


@asynccontextmanager
async def client(library, throttle):
    """Give the function that sends a request and returns its status, or None where it is held."""
    courtesy = Courtesy(throttle=throttle)
    if library is aiohttp:
        async with aiohttp.ClientSession(middlewares=[Middleware(courtesy)]) as session:

            async def get(url):
                async with session.get(url) as response:
                    return response.status

            yield held_as_none(get)
    else:
        async with library.AsyncClient(transport=AsyncTransport(courtesy)) as session:

            async def get(url):
                return (await session.get(url)).status_code

            yield held_as_none(get)


def held_as_none(get):
    async def get_or_none(url):
        try:
            return await get(url)
        except NoContact:
            return None

    return get_or_none


@pytest.mark.parametrize(
    ("library", "backend"),
    [(httpx2, "asyncio"), (httpx2, "trio"), (httpx, "asyncio"), (aiohttp, "asyncio")],
    ids=["httpx2", "httpx2-trio", "httpx", "aiohttp"],
)
def test_the_event_loop_is_not_blocked_while_the_file_is_locked(path, failing, library, backend, monkeypatch):
    monkeypatch.setattr(file_module, "_BUSY_TIMEOUT", 2 * PATIENCE)
    events = []

    async def main(throttle, lock):
        steps = 0
        is_over = False

        async def step():
            nonlocal steps
            while not is_over:
                steps += 1
                await anyio.lowlevel.checkpoint()

        async with client(library, throttle) as get, anyio.create_task_group() as tasks:
            tasks.start_soon(step)
            for number in range(5):
                before = steps
                answers = [await get(f"{failing}/{number}?{again}") for again in range(5)]
                assert answers == [503, 503, 503, None, None]
                assert steps >= before + 3, "no other task got its turn while three requests were sent"
            events.append("answered")
            is_over = True
        assert throttle.postponed > 0
        events.append(lock.release())

    with SharedThrottle(path, POLICY, hold_localhost=True) as throttle:
        with locked(path) as lock:
            anyio.run(main, throttle, lock, backend=backend)
        assert events == ["answered", "released"]
        assert throttle.synchronize(PATIENCE), throttle.trouble
    with SharedThrottle(path, POLICY, hold_localhost=True) as late:
        assert len(late) == 5


@contextmanager
def closed(throttle):
    """Have the file closed meanwhile, as it is while a process is forked."""
    throttle._shared._before_fork()
    yield
    throttle._shared._after_fork(is_child=False)


def full(path, throttle):
    """Have the file's disk be full."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("file-wal").stat().st_size, resource.RLIM_INFINITY))


def not_writable(path, throttle):
    """Have the file be one that may only be read, when it is opened again."""
    with closed(throttle):
        for each in path.parent.iterdir():
            each.chmod(0o444)
        path.parent.chmod(0o555)
        if os.geteuid() == 0:  # which may do everything
            os.setgroups([])
            os.setuid(65534)


def gone(path, throttle):
    """Have the directory of the file be gone."""
    for each in path.parent.iterdir():
        each.unlink()
    path.parent.rmdir()


def overwritten(path, throttle):
    """Have the file be another program's."""
    with closed(throttle):
        for each in path.parent.iterdir():
            each.unlink()
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE t (x)")


TROUBLES = {
    "full": (full, {"cannot grow, since its disk is full; free some space", "cannot be used (disk I/O error)"}),
    "not_writable": (not_writable, {"cannot be written; allow this program", "cannot be opened; allow this program"}),
    "gone": (gone, {"cannot be opened, since"}),
    "overwritten": (overwritten, {"is a database of another program"}),
}


def in_trouble(what, folder, url):
    """Send requests while there is trouble with the file; run in a process of its own, which may not mend itself."""
    store_module._RETRY_INTERVAL = 0.01
    path = folder / "file"
    make, sentences = TROUBLES[what]
    throttle = SharedThrottle(path, POLICY, hold_localhost=True)
    throttle.response_received(f"{url}/first", 503, {}, now=time.time())
    assert throttle.synchronize(PATIENCE)

    async def main():
        async with client(httpx2, throttle) as get:
            assert await get(f"{url}/first") == 503  # so that everything is imported
            make(path, throttle)
            for number in range(200):
                answers = [await get(f"{url}/{'l' * 500}{number}?{again}") for again in range(5)]
                assert answers == [503, 503, 503, None, None]
                if throttle.trouble and number > 3:
                    return
            raise AssertionError("there was no trouble")

    asyncio.run(main())
    assert any(f"{path} {sentence}" in throttle.trouble for sentence in sentences), throttle.trouble
    assert throttle.postponed > 0
    print("fine", flush=True)
    os._exit(0)


@pytest.mark.parametrize("what", TROUBLES)
def test_requests_are_sent_and_held_although_the_file_is_unusable(tmp_path, failing, what):
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.e2e.test_shared_throttle_async import in_trouble\n"
        "in_trouble(sys.argv[1], Path(sys.argv[2]), sys.argv[3])\n"
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, "-c", script, what, folder, failing]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    if folder.exists():
        folder.chmod(0o777)
    assert (done.stdout, done.stderr) == ("fine\n", "")
