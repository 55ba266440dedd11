"""A crew: so many worker processes, started, started again when they die, asked for their states, and ended.

What they work at is their plan's business. Each has a number, which whoever takes its place gets too.
"""

import asyncio
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from headgate.config.tree import Loop
from headgate.errors import ConfigurationError
from headgate.runtime.event_loop import say
from headgate.runtime.ipc import Ask, Channel, End, Failed, Ready, Told

__all__ = ["Crew", "Member", "Plan"]

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_LASTING = 10.0
"""Seconds after which a worker counts as having worked."""
_PATIENCE = 1.0
"""Seconds a worker has to tell its state; what it told last counts for one that does not."""
_START_TIMEOUT = 60.0
"""Seconds a worker has to start; it may have bundles to read. One that is not ready then is killed."""
_MOST_ASKED = 60
"""Questions that a worker leaves unanswered before it is asked no more."""
_GRACE = 2.0
"""Seconds a worker has to be gone after its time is over."""

_State = TypeVar("_State")


class Plan(Protocol[_State]):
    """What a crew is there for."""

    module: str
    """What a worker runs."""
    hears: Any
    """The union of the messages that workers send."""
    nothing: _State
    """The state of a worker that has told none."""

    def orders(self, number: int) -> msgspec.Struct:
        """Give the first message to a worker."""

    def heard(self, member: "Member[_State]", message: Any) -> None:
        """Hear a message of a kind that not every crew has."""

    def buried(self, member: "Member[_State]") -> None:
        """Keep what is worth keeping of a worker that is gone."""


class Member(Generic[_State]):
    """One worker process as its parent sees it."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, channel: Channel, plan: Plan[_State]) -> None:
        self.number = number
        """Which of the crew it is, from 0."""
        self.process = process
        self.channel = channel
        self.ready = False
        """Whether it accepts."""
        self.failure = ""
        """Why it could not start."""
        self.last = plan.nothing
        """What it told last."""
        self._plan = plan
        self._asked: deque[asyncio.Future[_State]] = deque()
        self._settled = asyncio.Event()
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def settle(self) -> None:
        """Come back when it is ready, or is not going to be."""
        await self._settled.wait()

    async def ask(self, *, whole: bool) -> _State:
        """Give what it is doing now, or what it told last when it does not tell in time."""
        if not self.ready or len(self._asked) >= _MOST_ASKED:
            return self.last
        answer: asyncio.Future[_State] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self.channel.send(Ask(whole))
        await asyncio.wait([answer], timeout=_PATIENCE)
        return answer.result() if answer.done() else self.last

    async def gone(self) -> str:
        """Come back when its process has ended and all it said has been heard; returns why it ended."""
        code = await self.process.wait()
        await asyncio.shield(self._listening)  # whoever waits here may be told to stop
        await self.channel.close()
        return self.failure or (f"exit {code}" if code >= 0 else signal.Signals(-code).name)

    async def _listen(self) -> None:
        while (message := await self.channel.receive()) is not None:
            if isinstance(message, Told):
                self.last = message.state
                if self._asked:
                    self._asked.popleft().set_result(message.state)
            elif isinstance(message, Failed):
                self.failure = message.sentence
            elif isinstance(message, Ready):
                self.ready = True
                self._settled.set()
            else:
                self._plan.heard(self, message)
        self.ready = False
        self._settled.set()
        for waiting in self._asked:
            waiting.set_result(self.last)


class Crew(Generic[_State]):
    """`count` workers after one plan; see the module.

    `descriptors` are handed down to them under the numbers they have here; `tell` is told, in a sentence, of workers
    that ended by themselves. A worker that is not ready `start_timeout` seconds after its start is killed.
    """

    def __init__(
        self,
        plan: Plan[_State],
        count: int,
        *,
        loop: Loop = "auto",
        descriptors: Sequence[int] = (),
        tell: Callable[[str], None] = say,
        start_timeout: float = _START_TIMEOUT,
    ) -> None:
        self.ending = False
        """Whether they are to end."""
        self._plan = plan
        self._count = count
        self._loop = loop
        self._descriptors = descriptors
        self._tell = tell
        self._start_timeout = start_timeout
        self._running: dict[int, Member[_State]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def members(self) -> list[Member[_State]]:
        """Those that run."""
        return list(self._running.values())

    async def start(self) -> None:
        """Start them; comes back when all accept. Raises `ConfigurationError` when one cannot."""
        loop = asyncio.get_running_loop()
        members = await asyncio.gather(*map(self._spawn, range(self._count)))
        self._tasks = [loop.create_task(self._keep(member)) for member in members]
        self._tasks.append(loop.create_task(self._poll()))

    def unready(self) -> str:
        """Say why nothing is accepted; empty when it is."""
        if self.ending:
            return "draining"
        return "" if any(member.ready for member in self.members) else "starting"

    async def states(self, *, whole: bool) -> list[_State]:
        """Ask every worker; give the states of those that live then, while the plan has those of the others."""
        members = self.members
        told = await asyncio.gather(*(member.ask(whole=whole) for member in members))
        return [state for member, state in zip(members, told, strict=True) if member.process.pid in self._running]

    def send(self, message: msgspec.Struct) -> None:
        """Send a message to all."""
        for member in self.members:
            member.channel.send(message)

    async def end(self, seconds: float) -> None:
        """End them all: politely, and after `seconds` not. Comes back when all they said is heard, and they are buried.

        A second call, while the first one waits, has it wait no longer.
        """
        if self.ending:
            seconds = 0
        self.ending = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        members = self.members
        self.send(End(seconds))
        gone = [asyncio.ensure_future(self._see_off(member)) for member in members]
        try:
            if gone:
                await asyncio.wait(gone, timeout=seconds + _GRACE)
        finally:
            for member in members:
                if member.process.returncode is None:
                    member.process.kill()
            await asyncio.gather(*gone)

    async def _see_off(self, member: Member[_State]) -> str:
        """Come back when a worker is gone and buried; returns why it ended."""
        why = await member.gone()
        self._bury(member)
        return why

    async def _spawn(self, number: int) -> Member[_State]:
        """Start a worker; comes back when it accepts. Raises `ConfigurationError` when it cannot."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", self._plan.module, str(theirs.fileno()), self._loop),
                pass_fds=[theirs.fileno(), *self._descriptors],
                stdin=asyncio.subprocess.DEVNULL,
                # Ctrl-C at the terminal is for the parent, which tells the workers.
                start_new_session=True,
            )
        try:
            channel = await Channel.over(ours, self._plan.hears)
        except BaseException:
            process.kill()
            raise
        member = self._running[process.pid] = Member(number, process, channel, self._plan)
        member.channel.send(self._plan.orders(number))
        try:
            async with asyncio.timeout(self._start_timeout):
                await member.settle()
        except TimeoutError:
            member.failure = f"not ready {self._start_timeout:g} s after its start"
            process.kill()
        if member.failure or not member.ready:
            raise ConfigurationError(await self._see_off(member))
        return member

    def _bury(self, member: Member[_State]) -> None:
        if self._running.pop(member.process.pid, None) is not None:
            self._plan.buried(member)

    async def _keep(self, member: Member[_State]) -> None:
        """Start another worker whenever one ends, pausing longer the sooner they do."""
        pause = _FIRST_PAUSE
        while not self.ending:
            began = time.monotonic()
            why = await self._see_off(member)
            pause = _FIRST_PAUSE if time.monotonic() - began > _LASTING else min(2 * pause, _LONGEST_PAUSE)
            while not self.ending:
                self._tell(f"headgate: worker {member.process.pid} ended ({why}); another one starts in {pause:g} s")
                await asyncio.sleep(pause)
                try:
                    member = await self._spawn(member.number)
                except (ConfigurationError, OSError) as error:
                    why, pause = str(error), min(2 * pause, _LONGEST_PAUSE)
                else:
                    break

    async def _poll(self) -> None:
        """Know what each worker has counted, for when it is gone."""
        while True:
            await asyncio.sleep(_PATIENCE)
            await self.states(whole=False)
