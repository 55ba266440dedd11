"""Workers that are real processes, of programs made for the purpose."""

import asyncio
import signal

import pytest

from headgate.errors import ConfigurationError
from headgate.runtime.ipc import Failed, Ready, Told
from headgate.runtime.supervisor import Crew

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
STAYS = f"{IS_READY}\nwhile b'End' not in channel.recv(65536): pass"


class Plan:
    """What the workers are: a program; the exit codes of those that are over."""

    module = "made_worker"
    hears = Ready | Failed | Told[int]
    nothing = 0

    def __init__(self):
        self.codes = []

    def orders(self, number):
        return Told(number)

    def heard(self, member, message):
        raise AssertionError(message)

    def buried(self, member):
        self.codes.append(member.process.returncode)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a function that says what workers do from the next one on."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return (tmp_path / "made_worker.py").write_text


def test_a_worker_that_hangs_at_its_start_is_killed_and_said(program):
    program(HANGS)
    plan = Plan()
    crew = Crew(plan, 1, start_timeout=0.2)

    async def main():
        with pytest.raises(ConfigurationError, match=r"^not ready 0\.2 s after its start$"):
            await asyncio.wait_for(crew.start(), 60)
        assert crew.members == []
        await crew.end(0)

    asyncio.run(main())
    assert plan.codes == [-signal.SIGKILL]


def test_a_worker_that_hangs_at_its_start_is_replaced(program):
    """The first one ends, the second hangs, the third one stays."""
    program(ENDS)
    plan, told, third = Plan(), [], asyncio.Event()

    def tell(sentence):
        told.append(sentence)
        if len(told) == 1:
            program(HANGS)
            crew._start_timeout = 0.2
        else:
            program(STAYS)
            crew._start_timeout = 60.0
            third.set()

    crew = Crew(plan, 1, tell=tell)

    async def main():
        async with asyncio.timeout(60):
            await crew.start()
            await third.wait()
            while not crew.members:  # noqa: ASYNC110 - nothing tells when a process was started
                await asyncio.sleep(0.01)
            await crew.members[0].settle()
            assert crew.unready() == ""
        await crew.end(10)

    asyncio.run(main())
    assert "ended (exit 3)" in told[0]
    assert "ended (not ready 0.2 s after its start)" in told[1]
    assert plan.codes == [3, -signal.SIGKILL, 0]


def test_questions_to_a_worker_that_answers_none_are_bounded(program):
    program(STAYS)
    crew = Crew(Plan(), 1)

    async def main():
        await crew.start()
        member = crew.members[0]
        loop = asyncio.get_running_loop()
        member._asked.extend(loop.create_future() for _ in range(60))
        assert await member.ask(whole=False) == 0
        assert len(member._asked) == 60
        await crew.end(10)

    asyncio.run(main())
