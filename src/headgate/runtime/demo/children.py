"""The processes of the demonstration: started, watched, and stopped whatever happens.

All of them end with the parent, too, if that is killed: workers at the end of their channel, programs at the end of
their standard input.
"""

import asyncio
import re
import signal
import sys
from collections import deque
from contextlib import suppress
from typing import Any, Final, Generic, Self, TypeVar

from headgate.errors import DemoError
from headgate.runtime.ipc import Configure, Shutdown
from headgate.runtime.supervisor import WorkerProcess, spawn_worker

_START_TIMEOUT: Final = 30.0
_STOP_TIMEOUT: Final = 4.0
"""Seconds after which a process that was asked to stop is killed."""
_LINES_KEPT: Final = 5
_ADMIN: Final = re.compile(r" admin (http://\S+)")

_State = TypeVar("_State")


class Role(Generic[_State]):
    """What one worker process of the demonstration runs; the `WorkerSpec` of a single worker."""

    def __init__(self, module: str, message_type: Any, initial_state: _State, configuration: Any) -> None:
        self.module = module
        self.message_type = message_type
        self.initial_state = initial_state
        self.current = configuration
        """The configuration that the worker gets."""

    def configuration(self, number: int) -> Configure[Any]:  # noqa: ARG002  # there is one worker
        """Return the configuration."""
        return Configure(self.current)

    def on_worker_message(self, worker: WorkerProcess[_State], message: Any) -> None:
        """Ignore it: the workers of the demonstration send no other messages."""

    def on_worker_exit(self, worker: WorkerProcess[_State]) -> None:
        """Do nothing."""


class Worker(Generic[_State]):
    """A worker process."""

    def __init__(self, name: str, role: Role[_State], process: WorkerProcess[_State]) -> None:
        self.name = name
        self._role = role
        self._process = process

    @classmethod
    async def start(cls, name: str, role: Role[_State]) -> "Worker[_State]":
        """Start a worker; it may not be ready yet."""
        return cls(name, role, await spawn_worker(role, 0))

    async def ready(self) -> None:
        """Wait until it is ready. Raises `DemoError` if it cannot start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_TIMEOUT):
                await self._process.settled()
        if not self._process.ready:
            raise DemoError(f"{self.name} did not start: {self._process.failure or 'it ended, or took too long'}")

    async def state(self) -> _State:
        """Return its state."""
        return await self._process.state(whole=True)

    def configure(self, configuration: Any) -> None:
        """Give it another configuration."""
        self._role.current = configuration
        self._process.channel.send(Configure(configuration))

    @property
    def process(self) -> asyncio.subprocess.Process:
        """Its process."""
        return self._process.process

    async def stop(self) -> None:
        """Stop it, and wait for its end."""
        self._process.channel.send(Shutdown(0.0))
        await _end(self.process)
        await self._process.ended()


class Program:
    """A `headgate` with its own command line, which reports its address on stderr."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.port = 0
        """Where it listens."""
        self.admin = 0
        """The port of its admin listener; 0 without one."""
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._is_ready = asyncio.Event()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def start(cls, name: str, *arguments: str) -> "Program":
        """Start `headgate` with these arguments; it may not be ready yet."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "headgate.runtime.demo.guarded", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at the terminal is for the parent
        )
        return cls(name, process)

    async def ready(self) -> None:
        """Wait until it listens. Raises `DemoError` if it cannot start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_TIMEOUT):
                await self._is_ready.wait()
        if not self.port:
            raise DemoError(f"{self.name} did not start: {' '.join(self._lines) or 'it took too long'}")

    async def stop(self) -> None:
        """Stop it, and wait for its end."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        await _end(self.process)
        await self._reading

    @property
    def last_words(self) -> str:
        """The last line that it wrote."""
        return self._lines[-1] if self._lines else ""

    async def _read(self) -> None:
        """Read its stderr to the end: the address, and the last lines, for an error."""
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode(errors="replace").rstrip():
            self._lines.append(line)
            if (found := _ADMIN.search(line)) is not None:
                self.admin = int(found[1].rpartition(":")[2])
            if line.startswith("ready "):
                self.port = int(line.rpartition(":")[2])
                self._is_ready.set()
        self._is_ready.set()


class Children:
    """All processes of the demonstration, for an `async with` block: at its end, all of them have ended."""

    def __init__(self) -> None:
        self._running: list[Worker[Any] | Program] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        stopping = [asyncio.ensure_future(child.stop()) for child in self._running]
        self._running.clear()
        if stopping:
            # Also after a second signal: nothing may be left running.
            await asyncio.shield(asyncio.gather(*stopping, return_exceptions=True))

    async def worker(self, name: str, role: Role[_State]) -> Worker[_State]:
        """Start a worker."""
        worker = await Worker.start(name, role)
        self._running.append(worker)
        return worker

    async def program(self, name: str, *arguments: str) -> Program:
        """Start a program."""
        program = await Program.start(name, *arguments)
        self._running.append(program)
        return program

    async def kill(self, worker: Worker[Any]) -> None:
        """Kill a worker on purpose."""
        self._running.remove(worker)
        with suppress(ProcessLookupError):
            worker.process.kill()
        await worker.stop()

    def check(self) -> None:
        """Raise `DemoError` if a process has ended by itself."""
        for child in self._running:
            code = child.process.returncode
            if code is not None:
                why = f"exit {code}" if code >= 0 else signal.Signals(-code).name
                said = f": {child.last_words}" if isinstance(child, Program) and child.last_words else ""
                raise DemoError(f"{child.name} ended during the demonstration ({why}){said}")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process that was asked to stop; kill it if that takes too long."""
    try:
        async with asyncio.timeout(_STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
