"""The life-cycle of every server process: start, ready, reload, drain, stop.

`TRANSITIONS` is the whole rule. Events come from signals (`run_server`), from the parent of a worker (`worker_main`),
and from the server's own operations when they end. This file does not know what a server serves.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, Final

from headgate.config.tree import Loop
from headgate.errors import HeadgateError
from headgate.runtime.event_loop import run
from headgate.runtime.stderr import write_line

__all__ = ["TRANSITIONS", "Action", "Event", "Lifecycle", "Phase", "Server", "run_server"]


class Phase(Enum):
    """Where a server is in its life."""

    STARTING = auto()
    READY = auto()
    RELOADING = auto()
    DRAINING = auto()
    STOPPING = auto()
    """The drain was cut short."""
    STOPPED = auto()


class Event(Enum):
    """What moves a server from one phase to the next."""

    STARTED = auto()
    RELOAD = auto()
    RELOADED = auto()
    STOP = auto()
    DRAINED = auto()


class Action(Enum):
    """What is done on a transition."""

    ANNOUNCE = auto()
    RELOAD = auto()
    POSTPONE_RELOAD = auto()
    CONTINUE = auto()
    DRAIN = auto()
    STOP_AT_ONCE = auto()
    FINISH = auto()


TRANSITIONS: Final[dict[tuple[Phase, Event], tuple[Phase, Action]]] = {
    (Phase.STARTING, Event.STARTED): (Phase.READY, Action.ANNOUNCE),
    (Phase.STARTING, Event.RELOAD): (Phase.STARTING, Action.POSTPONE_RELOAD),
    (Phase.STARTING, Event.STOP): (Phase.STOPPED, Action.FINISH),
    (Phase.READY, Event.RELOAD): (Phase.RELOADING, Action.RELOAD),
    (Phase.READY, Event.STOP): (Phase.DRAINING, Action.DRAIN),
    (Phase.RELOADING, Event.RELOAD): (Phase.RELOADING, Action.POSTPONE_RELOAD),
    (Phase.RELOADING, Event.RELOADED): (Phase.READY, Action.CONTINUE),
    (Phase.RELOADING, Event.STOP): (Phase.DRAINING, Action.DRAIN),
    (Phase.DRAINING, Event.STOP): (Phase.STOPPING, Action.STOP_AT_ONCE),
    (Phase.DRAINING, Event.DRAINED): (Phase.STOPPED, Action.FINISH),
    (Phase.STOPPING, Event.DRAINED): (Phase.STOPPED, Action.FINISH),
}
"""Phase and event to the next phase and the action. Events that a phase does not have are ignored."""

_UNREADY: Final = {
    Phase.STARTING: "starting",
    Phase.DRAINING: "draining",
    Phase.STOPPING: "draining",
    Phase.STOPPED: "draining",
}


class Server:
    """What a life-cycle drives. The defaults are those of a server that has nothing to do in that phase."""

    @property
    def drain_timeout(self) -> float:
        """Seconds that requests under way may take after a stop."""
        return 0.0

    async def start(self, unready: Callable[[], str], fail: Callable[[BaseException], None]) -> None:
        """Start to accept clients.

        `unready` returns why the server accepts none, empty when it does; `fail` ends it with an exception.
        """
        raise NotImplementedError

    def announce(self) -> None:
        """Report that clients are accepted."""

    def unready(self) -> str:
        """Return why no client is accepted although the server has started; empty when they are."""
        return ""

    async def reload(self) -> None:
        """Read the configuration again and put it in force. Raises, and leaves all as it is, for an invalid one."""

    async def drain(self, seconds: float) -> None:
        """Accept no more clients, and return when those that are served are done, or after `seconds`.

        A second call, with 0, while the first one waits makes both return.
        """

    async def close(self) -> None:
        """Release everything, however far the start came."""

    def log(self, message: str) -> None:
        """Write a message for the operator."""
        write_line(message)


class Lifecycle:
    """Moves one server through its phases."""

    def __init__(self, server: Server) -> None:
        self.phase = Phase.STARTING
        """The current phase."""
        self._server = server
        self._reload_is_postponed = False
        self._drain_seconds = 0.0
        self._operation: asyncio.Task[None] | None = None
        self._earlier: list[asyncio.Task[None]] = []
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Start the server; return once it has stopped. Raises what its start raises, or what made it fail."""
        self._begin(self._server.start(self.unready, self.fail), Event.STARTED)
        try:
            await self._finished
        finally:
            self.phase = Phase.STOPPED
            await self._cancel_operations()
            await self._server.close()

    def unready(self) -> str:
        """Return why no client is accepted; empty when they are."""
        return _UNREADY.get(self.phase) or self._server.unready()

    def reload(self) -> None:
        """Have the configuration reloaded: now, or after the start or the reload under way."""
        self._handle(Event.RELOAD)

    def stop(self, seconds: float | None = None) -> None:
        """Stop after a drain of `seconds`, else of the server's own timeout; called a second time, at once."""
        if self.phase in {Phase.READY, Phase.RELOADING}:
            self._drain_seconds = self._server.drain_timeout if seconds is None else seconds
        self._handle(Event.STOP)

    def fail(self, error: BaseException) -> None:
        """Stop at once, and have `run` raise `error`."""
        if not self._finished.done():
            self._finished.set_exception(error)

    def _handle(self, event: Event) -> None:
        transition = TRANSITIONS.get((self.phase, event))
        if transition is not None:
            self.phase, action = transition
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Action.ANNOUNCE:
                self._announce()
                self._start_postponed_reload()
            case Action.CONTINUE:
                self._start_postponed_reload()
            case Action.POSTPONE_RELOAD:
                self._reload_is_postponed = True
            case Action.RELOAD:
                self._begin(self._reload(), Event.RELOADED)
            case Action.DRAIN:
                self._begin(self._drain(), Event.DRAINED)
            case Action.STOP_AT_ONCE:
                self._begin(self._server.drain(0), Event.DRAINED)
            case Action.FINISH:
                if not self._finished.done():
                    self._finished.set_result(None)

    def _announce(self) -> None:
        try:
            self._server.announce()
        except Exception as error:  # such as a closed standard output
            self.fail(error)

    def _start_postponed_reload(self) -> None:
        if self._reload_is_postponed:
            self._reload_is_postponed = False
            self._handle(Event.RELOAD)

    def _begin(self, operation: Coroutine[Any, Any, None], end: Event) -> None:
        """Run an operation; its end is the event `end`, unless another operation has begun meanwhile."""
        task = asyncio.get_running_loop().create_task(operation)
        if self._operation is not None and not self._operation.done():
            self._earlier.append(self._operation)
        self._operation = task
        task.add_done_callback(lambda done: self._on_end(done, end))

    def _on_end(self, task: asyncio.Task[None], end: Event) -> None:
        if task in self._earlier:
            self._earlier.remove(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.fail(error)
        elif task is self._operation:
            self._handle(end)

    async def _reload(self) -> None:
        try:
            await self._server.reload()
        except (HeadgateError, OSError) as error:
            self._server.log(f"headgate: {error}; the configuration in force stays as it is")
        except Exception as error:
            self._server.log(f"headgate: internal error in a reload: {type(error).__name__}: {error}")

    async def _drain(self) -> None:
        await _cancel(self._earlier)  # a reload
        await self._server.drain(self._drain_seconds)

    async def _cancel_operations(self) -> None:
        await _cancel([*self._earlier, *([self._operation] if self._operation is not None else [])])


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    running = list(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def run_server(server: Server, *, loop: Loop = "auto") -> int:
    """Run a server until a signal stops it; returns the exit code.

    SIGTERM and SIGINT stop it after a drain, a second one at once; SIGHUP reloads its configuration.
    """

    async def main() -> int:
        lifecycle = Lifecycle(server)
        running_loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running_loop.add_signal_handler(number, lifecycle.stop)
        running_loop.add_signal_handler(signal.SIGHUP, lifecycle.reload)
        await lifecycle.run()
        return 0

    return run(main, loop=loop)
