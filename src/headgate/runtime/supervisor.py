"""Worker processes: started, restarted when they end, queried for their states, and stopped.

What a worker runs is given by its `WorkerSpec`. Each has a number, which its replacement gets too.
"""

import asyncio
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from headgate.config.section import Loop
from headgate.errors import ConfigurationError
from headgate.runtime.ipc import Channel, Query, Ready, Reply, Shutdown, StartFailed
from headgate.runtime.lifecycle import cancel_tasks
from headgate.runtime.log import log

_MIN_RESTART_PAUSE: Final = 0.1
_MAX_RESTART_PAUSE: Final = 10.0
_STABLE_AFTER: Final = 10.0
"""Seconds after which the end of a worker does not lengthen the pause before its restart."""
_REPLY_TIMEOUT: Final = 1.0
"""Seconds a worker has to answer; after that its last state counts."""
_START_TIMEOUT: Final = 60.0
"""Seconds a worker has to become ready (it may have bundles to read); after that it is killed."""
_UNRESPONSIVE_AFTER: Final = 2
"""Queries in a row that a worker leaves unanswered before it is reported; there is one in two seconds then."""
_HUNG_AFTER: Final = 3
"""Such queries after which it is killed if it does not run either, as while it is stopped."""
_STUCK_AFTER: Final = 30
"""Such queries after which it is killed even if it runs: for a minute, no client was answered."""
_MAX_QUERIES: Final = 60
"""Unanswered queries after which a worker gets no further one."""
_KILL_AFTER: Final = 2.0
"""Seconds after the drain timeout at which a worker is killed."""

_STATES: Final = {"R": "running", "S": "waiting", "D": "waiting for a disk", "T": "stopped", "t": "being debugged"}
_HUNG: Final = frozenset({"stopped", "waiting"})
"""States of a process that ought to answer: it has its processor, no disk to wait for, and no debugger."""

_State = TypeVar("_State")


class WorkerSpec(Protocol[_State]):
    """What the workers of a supervisor run."""

    module: str
    """The module that a worker process runs."""
    message_type: Any
    """The union of the messages that workers send."""
    initial_state: _State
    """The state of a worker that has not reported yet; all states have its type."""

    def configuration(self, number: int) -> msgspec.Struct:
        """Return the `Configure` message for a worker."""

    def on_worker_message(self, worker: "WorkerProcess[_State]", message: Any) -> None:
        """Handle a message of a kind that not every supervisor has."""

    def on_worker_exit(self, worker: "WorkerProcess[_State]") -> None:
        """Keep what is needed of a worker that has ended."""


def process_activity(pid: int) -> tuple[str, int]:
    """Return a word for the state of a process, and the processor time of all its threads in ticks (proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended, or this is not Linux
        return "unknown", 0
    return _STATES.get(fields[0], fields[0]), int(fields[11]) + int(fields[12])


class WorkerProcess(Generic[_State]):
    """One worker process as its supervisor sees it."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, channel: Channel, spec: WorkerSpec[_State]
    ) -> None:
        self.number = number
        """Its number among the workers, from 0."""
        self.process = process
        self.channel = channel
        self.ready = False
        """Whether it accepts clients."""
        self.failure = ""
        """Why it could not start."""
        self.last_state = spec.initial_state
        """The state that it reported last."""
        self.silent = 0
        """Queries in a row that it has not answered."""
        self._activity = ("", 0)
        self._spec = spec
        self._decode_state = msgspec.msgpack.Decoder(type(spec.initial_state)).decode
        self._queries: deque[asyncio.Future[bytes | None]] = deque()
        self.settled = asyncio.Event()
        """Set when it is ready or has failed."""
        self._receiving = asyncio.get_running_loop().create_task(self._receive())

    async def state(self, *, whole: bool) -> _State:
        """Return its current state, or the last one when it does not report in time."""
        content = await self.ask("state", whole)
        return self.last_state if content is None else self._decode_state(content)

    async def ask(self, name: str, argument: object = None) -> bytes | None:
        """Return what its backend answers, in msgpack; None when it is not ready or does not answer in time."""
        if not self.ready or len(self._queries) >= _MAX_QUERIES:
            return None
        reply: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._queries.append(reply)
        self.channel.send(Query(name, argument))
        await asyncio.wait([reply], timeout=_REPLY_TIMEOUT)
        return reply.result() if reply.done() else None

    def check(self) -> None:
        """Report and finally kill a process that does not answer; one that is busy gets more time than a stopped one.

        Only queries count, not the time: this process, or the machine, may have been stopped itself.
        """
        before, self._activity = self._activity, process_activity(self.process.pid)
        state, _ = self._activity
        if self.silent == _UNRESPONSIVE_AFTER:
            log(f"warning: worker {self.process.pid} does not answer ({state})")
        is_hung = self.silent >= _HUNG_AFTER and self._activity == before and state in _HUNG
        if is_hung or self.silent >= _STUCK_AFTER:
            self.failure = f"killed: it does not answer, {state}"
            self.process.kill()

    async def ended(self) -> str:
        """Wait until its process has ended and its messages are handled; returns why it ended."""
        code = await self.process.wait()
        await asyncio.shield(self._receiving)  # the caller may be cancelled
        await self.channel.close()
        return self.failure or (f"exit {code}" if code >= 0 else signal.Signals(-code).name)

    async def _receive(self) -> None:
        while (message := await self.channel.receive()) is not None:
            self.silent = 0
            if isinstance(message, Reply):
                if message.name == "state":
                    self.last_state = self._decode_state(message.content)
                if self._queries:
                    self._queries.popleft().set_result(message.content)
            elif isinstance(message, StartFailed):
                self.failure = message.reason
            elif isinstance(message, Ready):
                self.ready = True
                self.settled.set()
            else:
                self._spec.on_worker_message(self, message)
        self.ready = False
        self.settled.set()
        for query in self._queries:
            query.set_result(None)


async def spawn_worker(
    spec: WorkerSpec[_State], number: int, *, loop: Loop = "auto", descriptors: Sequence[int] = ()
) -> WorkerProcess[_State]:
    """Start the process of a worker, and send it its configuration; it inherits `descriptors`."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", spec.module, str(theirs.fileno()), loop),
            pass_fds=[theirs.fileno(), *descriptors],
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal is for the supervisor
        )
    try:
        channel = await Channel.open(ours, spec.message_type)
    except BaseException:
        process.kill()
        raise
    worker = WorkerProcess(number, process, channel, spec)
    channel.send(spec.configuration(number))
    return worker


class Supervisor(Generic[_State]):
    """`count` worker processes of one spec.

    `descriptors` are inherited by the workers under the same numbers; `log` is called with a line for each worker that
    ends by itself. A worker that is not ready `start_timeout` seconds after its start is killed.
    """

    def __init__(
        self,
        spec: WorkerSpec[_State],
        count: int,
        *,
        loop: Loop = "auto",
        descriptors: Sequence[int] = (),
        start_timeout: float = _START_TIMEOUT,
    ) -> None:
        self._spec = spec
        self._count = count
        self._loop = loop
        self._descriptors = descriptors
        self._start_timeout = start_timeout
        self._is_stopping = False
        self._running: dict[int, WorkerProcess[_State]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def workers(self) -> list[WorkerProcess[_State]]:
        """The workers that run."""
        return list(self._running.values())

    async def start(self) -> None:
        """Start the workers; return when all are ready. Raises `ConfigurationError` when one cannot start."""
        workers = await asyncio.gather(*map(self._spawn, range(self._count)))
        self._tasks = [asyncio.create_task(work) for work in (*map(self._restart, workers), self._poll())]

    def unready(self) -> str:
        """Return why no worker accepts clients; empty when one does."""
        return "" if any(worker.ready for worker in self.workers) else "starting"

    def processes(self) -> dict[str, tuple[int, bool]]:
        """Return the process id of each worker by its number, and whether it answers."""
        return {str(one.number): (one.process.pid, one.silent < _UNRESPONSIVE_AFTER) for one in self.workers}

    async def states(self, *, whole: bool) -> list[_State]:
        """Return the states of the workers that run; `on_worker_exit` has those that end meanwhile."""
        workers = self.workers
        states = await asyncio.gather(*(worker.state(whole=whole) for worker in workers))
        return [state for worker, state in zip(workers, states, strict=True) if worker.process.pid in self._running]

    def reload(self) -> None:
        """Send each worker its configuration again."""
        for worker in self.workers:
            worker.channel.send(self._spec.configuration(worker.number))

    async def stop(self, seconds: float) -> None:
        """Stop all workers gracefully; kill those still running after `seconds`. Returns when all have ended.

        A second call, while the first one waits, has it wait no longer.
        """
        if self._is_stopping:
            seconds = 0
        self._is_stopping = True
        await cancel_tasks(self._tasks)
        workers = self.workers
        for worker in workers:
            worker.channel.send(Shutdown(seconds))
        ended = [asyncio.ensure_future(self._remove(worker)) for worker in workers]
        try:
            if ended:
                await asyncio.wait(ended, timeout=seconds + _KILL_AFTER)
        finally:
            for worker in workers:
                if worker.process.returncode is None:
                    worker.process.kill()
            await asyncio.gather(*ended)

    async def _remove(self, worker: WorkerProcess[_State]) -> str:
        """Wait until a worker has ended, and forget it; returns why it ended."""
        reason = await worker.ended()
        if self._running.pop(worker.process.pid, None) is not None:
            self._spec.on_worker_exit(worker)
        return reason

    async def _spawn(self, number: int) -> WorkerProcess[_State]:
        """Start a worker; return when it is ready. Raises `ConfigurationError` when it cannot start."""
        worker = await spawn_worker(self._spec, number, loop=self._loop, descriptors=self._descriptors)
        process = worker.process
        self._running[process.pid] = worker
        try:
            async with asyncio.timeout(self._start_timeout):
                await worker.settled.wait()
        except TimeoutError:
            worker.failure = f"not ready {self._start_timeout:g} s after its start"
            process.kill()
        if worker.failure or not worker.ready:
            raise ConfigurationError(await self._remove(worker))
        return worker

    async def _restart(self, worker: WorkerProcess[_State]) -> None:
        """Replace a worker whenever it ends, after a pause that doubles as long as they end soon."""
        pause = _MIN_RESTART_PAUSE
        while not self._is_stopping:
            began = time.monotonic()
            reason = await self._remove(worker)
            is_stable = time.monotonic() - began > _STABLE_AFTER
            pause = _MIN_RESTART_PAUSE if is_stable else min(2 * pause, _MAX_RESTART_PAUSE)
            while not self._is_stopping:
                log(f"warning: worker {worker.process.pid} ended ({reason}); another one starts in {pause:g} s")
                await asyncio.sleep(pause)
                try:
                    worker = await self._spawn(worker.number)
                except (ConfigurationError, OSError) as error:
                    reason, pause = str(error), min(2 * pause, _MAX_RESTART_PAUSE)
                else:
                    break

    async def _poll(self) -> None:
        """Keep the last states up to date, for workers that end; replace those that hang."""
        while True:
            await asyncio.sleep(_REPLY_TIMEOUT)
            for worker in self.workers:
                worker.silent += worker.ready
            await self.states(whole=False)
            for worker in self.workers:
                worker.check()
