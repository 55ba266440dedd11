"""Worker processes that run small programs of the test."""

import asyncio
import os
import signal

import pytest

from headgate.errors import ConfigurationError
from headgate.runtime.ipc import Configure, Ready, Reply, StartFailed
from headgate.runtime.supervisor import Supervisor

HANGS = "import time; time.sleep(600)"
IS_READY = """
import socket, sys
import msgspec
from headgate.runtime.ipc import Ready

channel = socket.socket(fileno=int(sys.argv[1]))
message = msgspec.msgpack.encode(Ready())
channel.sendall(len(message).to_bytes(4, "big") + message)
"""
ENDS = f"{IS_READY}\nsys.exit(3)"
ANSWERS = f"""{IS_READY}
from headgate.runtime.ipc import Reply
answer = msgspec.msgpack.encode(Reply("state", msgspec.msgpack.encode(0)))
while b"Shutdown" not in (data := channel.recv(65536)):
    channel.sendall(data.count(b"Query") * (len(answer).to_bytes(4, "big") + answer))
"""
IS_BUSY = f"{IS_READY}\nwhile True: pass"
STAYS = f"{IS_READY}\nwhile b'Shutdown' not in channel.recv(65536): pass"


class Spec:
    """Workers that run a program of the test; the exit codes of those that have ended."""

    module = "made_worker"
    message_type = Ready | StartFailed | Reply
    initial_state = 0

    def __init__(self):
        self.codes = []

    def configuration(self, number):
        return Configure(number)

    def on_worker_message(self, worker, message):
        raise AssertionError(message)

    def on_worker_exit(self, worker):
        self.codes.append(worker.process.returncode)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a function that sets the program of the workers started from then on."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return (tmp_path / "made_worker.py").write_text


async def test_worker_that_hangs_at_its_start_is_killed(program):
    program(HANGS)
    spec = Spec()
    supervisor = Supervisor(spec, 1, start_timeout=0.2)
    with pytest.raises(ConfigurationError, match=r"^not ready 0\.2 s after its start$"):
        await asyncio.wait_for(supervisor.start(), 60)
    assert supervisor.workers == []
    await supervisor.stop(0)
    assert spec.codes == [-signal.SIGKILL]


async def test_worker_that_hangs_at_its_start_is_replaced(program, monkeypatch):
    """The first one ends, the second hangs, the third one stays."""
    program(ENDS)
    spec, lines, third = Spec(), [], asyncio.Event()

    def on_line(message):
        lines.append(message)
        if len(lines) == 1:
            program(HANGS)
            supervisor._start_timeout = 0.2
        else:
            program(STAYS)
            supervisor._start_timeout = 60.0
            third.set()

    monkeypatch.setattr("headgate.runtime.supervisor.log", on_line)
    supervisor = Supervisor(spec, 1)
    async with asyncio.timeout(60):
        await supervisor.start()
        await third.wait()
        while not supervisor.workers:  # noqa: ASYNC110 - nothing tells when a process was started
            await asyncio.sleep(0.01)
        await supervisor.workers[0].settled.wait()
        assert supervisor.unready() == ""
    await supervisor.stop(10)
    assert "ended (exit 3)" in lines[0]
    assert "ended (not ready 0.2 s after its start)" in lines[1]
    assert spec.codes == [3, -signal.SIGKILL, 0]


async def test_unanswered_queries_of_a_worker_are_bounded(program):
    program(STAYS)
    supervisor = Supervisor(Spec(), 1)
    await supervisor.start()
    worker = supervisor.workers[0]
    loop = asyncio.get_running_loop()
    worker._queries.extend(loop.create_future() for _ in range(60))
    assert await worker.state(whole=False) == 0
    assert len(worker._queries) == 60
    await supervisor.stop(10)


@pytest.fixture
def lines(monkeypatch):
    """Have workers queried at short intervals; returns the lines of the log."""
    lines = []
    monkeypatch.setattr("headgate.runtime.supervisor._REPLY_TIMEOUT", 0.1)
    monkeypatch.setattr("headgate.runtime.supervisor.log", lines.append)
    return lines


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nothing tells when it changes
            await asyncio.sleep(0.01)


async def test_a_worker_that_is_stopped_is_replaced(program, lines):
    program(ANSWERS)
    spec = Spec()
    supervisor = Supervisor(spec, 2)
    await supervisor.start()
    first = supervisor.workers[0]
    stopped, other = (worker.process.pid for worker in supervisor.workers)
    os.kill(stopped, signal.SIGSTOP)
    await until(lambda: [one[1] for one in supervisor.processes().values() if one[0] != stopped] == [True, True])
    assert supervisor.processes()["1"] == (other, True)
    await supervisor.stop(10)
    assert (spec.codes[0], first.silent) == (-signal.SIGKILL, 3)
    assert [line for line in lines if str(stopped) in line] == [
        f"warning: worker {stopped} does not answer (stopped)",
        f"warning: worker {stopped} ended (killed: it does not answer, stopped); another one starts in 0.2 s",
    ]


async def test_a_worker_that_is_busy_is_reported_and_gets_more_time(program, lines, monkeypatch):
    monkeypatch.setattr("headgate.runtime.supervisor._STUCK_AFTER", 10)
    program(IS_BUSY)
    supervisor = Supervisor(Spec(), 1)
    await supervisor.start()
    [worker] = supervisor.workers
    await until(lambda: lines)
    assert supervisor.processes() == {"0": (worker.process.pid, False)}
    await worker.ended()
    await supervisor.stop(10)
    assert worker.silent == 10
    assert lines[0] == f"warning: worker {worker.process.pid} does not answer (running)"
