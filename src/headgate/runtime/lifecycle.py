"""The life-cycle of every server process: start, ready, reload, drain, stop; and its event loop.

`Lifecycle.TRANSITIONS` is the whole rule. Events come from signals (`run_server`), from the supervisor of a worker
(`worker_main`), and from the server's own operations when they end. This file does not know what a server serves.
"""

import asyncio
import errno
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from headgate.config import Address, Configuration
from headgate.config.section import Loop
from headgate.errors import HeadgateError, MissingExtra
from headgate.observe.feed import Feed, Minute, Sample
from headgate.observe.state import ServerState
from headgate.runtime.log import log, open_log
from headgate.runtime.service_manager import ServiceManager

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ReadConfiguration: TypeAlias = Callable[[], tuple[Configuration, str | None]]
"""Reads the configuration, at the start and at each reload; also returns the name of its file, if there is one."""
_REPEAT_INTERVAL: Final = 3_600.0
"""Seconds between two warnings that no descriptor is left."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})


class LifecyclePhase(Enum):
    """Where a server is in its life."""

    STARTING = auto()
    READY = auto()
    RELOADING = auto()
    DRAINING = auto()
    STOPPING = auto()
    """The drain was cut short."""
    STOPPED = auto()


class LifecycleEvent(Enum):
    """What moves a server from one phase to the next."""

    STARTED = auto()
    RELOAD = auto()
    RELOADED = auto()
    STOP = auto()
    DRAINED = auto()


_UNREADY: Final = {
    LifecyclePhase.STARTING: "starting",
    LifecyclePhase.DRAINING: "draining",
    LifecyclePhase.STOPPING: "draining",
    LifecyclePhase.STOPPED: "draining",
}


class Backend:
    """One backend, driven by a `Server`. The defaults are those of a backend that has nothing to do."""

    drain_timeout = 0.0
    """Seconds that requests in progress may take after a stop."""

    async def start(self) -> None:
        """Start to accept clients. Raises `ConfigurationError` if that is not possible."""
        raise NotImplementedError

    def unready(self) -> str:
        """Return why no client is accepted although it has started; empty when they are."""
        return ""

    async def state(self, *, whole: bool) -> Any:
        """Return the state; if not `whole`, without the parts that take long, which no metric needs."""
        raise NotImplementedError

    def workers(self) -> Mapping[str, tuple[int, bool]]:
        """Return the process id of each worker, by its number, and whether it answers."""
        return {}

    async def answer(self, name: str, argument: Any) -> Any:
        """Answer a query of the supervisor, by its name; None for one that this backend does not know."""
        return await self.state(whole=argument) if name == "state" else None

    async def ask(self, name: str, argument: Any) -> list[Any]:
        """Return what each process that has clients answers to a query; None stands for one that does not answer."""
        return [await self.answer(name, argument)]

    async def reload(self, configuration: Any) -> None:
        """Apply another configuration. If it is invalid, raises and changes nothing."""
        raise NotImplementedError

    async def drain(self, seconds: float) -> None:
        """Stop accepting clients; return when all requests in progress have ended, or after `seconds`.

        A second call, with 0, while the first one waits makes both return.
        """

    async def close(self) -> None:
        """Close all connections and release all resources, also after a start that failed halfway."""

    def on_message(self, message: Any) -> None:
        """Handle a message that only this kind of worker receives; None after the supervisor has ended."""


class Server:
    """What a life-cycle drives: a backend, and what else its process has, such as an admin listener."""

    kind = "server"
    """Which dashboard it has."""
    loop: Loop = "auto"
    """The event loop that it runs in."""

    def __init__(self) -> None:
        self.backend = Backend()
        """What accepts clients; made by the start."""
        self.unready: Callable[[], str] = lambda: "starting"
        """Returns why no client is accepted; empty when they are."""
        self.fail: Callable[[BaseException], None] = lambda _error: None
        """Stops the server, which ends with an error."""
        self.stop: Callable[[float | None], None] = lambda _seconds: None
        """Stops the server, after a drain of some seconds."""
        self.admin: Sequence[Address] = ()
        """Numeric addresses of the admin listener; empty without one."""
        self.feed: Feed | None = None
        """What its dashboard shows; made with the first admin listener."""
        self.closing = AsyncExitStack()
        """What is released at the end."""
        self.started = round(time.time(), 3)
        """Time of the start, seconds since 1970."""
        self.reloaded = time.time()
        """Time at which the configuration in force was read, seconds since 1970."""
        self.reload_failed = False
        """Whether a later one was invalid."""

    async def start(self) -> None:
        """Start the backend."""
        raise NotImplementedError

    def announce(self) -> None:
        """Report that clients are accepted."""

    def release(self) -> None:
        """Close the process's own copies of listening sockets, before the backend drains."""

    async def reload(self) -> None:
        """Read the configuration again and apply it. If it is invalid, raises and changes nothing."""

    async def drain(self, seconds: float) -> None:
        """Stop accepting clients; see `Backend.drain`."""
        await self.backend.drain(seconds)

    async def close(self) -> None:
        """Release all resources, also after a start that failed halfway."""
        await self.closing.aclose()

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until the end, and cancel it then."""
        task = asyncio.get_running_loop().create_task(work)
        self.closing.push_async_callback(cancel_tasks, [task])
        return task

    # What the admin listener shows.

    async def state(self, *, whole: bool) -> Any:
        """Return the state; if not `whole`, without the parts that take long, which no metric needs."""
        return await self.backend.state(whole=whole)

    def server_state(self) -> ServerState:
        """Return what every server has besides its state."""
        return ServerState(not self.reload_failed, round(self.reloaded, 3), self.backend.workers())

    def metrics(self, state: Any) -> "Iterable[Metric]":
        """Make the metrics of a state."""
        raise NotImplementedError

    def to_json(self, state: Any) -> Any:
        """Return what /api/state shows of a state."""
        return state

    async def samples(self, *, tables: bool) -> list[Sample]:
        """Return what each process has counted; tables only if they are asked for."""
        answers = await self.ask("sample", tables)
        return [msgspec.convert(answer, Sample) for answer in answers if answer is not None]

    async def overview(self, minute: Minute) -> dict[str, Any]:  # noqa: ARG002  # for others
        """Return what the dashboard shows besides the rows of `minute`."""
        return {}

    # What `headgate ctl` does.

    def scope(self, act: str) -> str:  # noqa: ARG002  # for others
        """Return where else a client must be held or released, for the end of a sentence."""
        return ""

    async def ask(self, name: str, argument: Any) -> list[Any]:
        """Return the answers of all processes to a query; see `Backend.ask`."""
        return await self.backend.ask(name, argument)

    async def set_mode(self, domain: str, mode: str) -> None:
        """Change the mode of a domain until the next reload. Raises `HeadgateError` if that is not possible."""
        raise HeadgateError(f"this server applies no rules: it cannot set {domain!r} to {mode}")


class Lifecycle:
    """Moves one server through its phases.

    `notify` sends assignments such as READY=1 to a service manager; `report` gets a line when the server drains and
    when it has stopped.
    """

    def __init__(
        self,
        server: Server,
        notify: Callable[..., None] = lambda *_: None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._log = report
        self.phase = LifecyclePhase.STARTING
        """The current phase."""
        self._notify = notify
        server.unready, server.fail, server.stop = self.unready, self.fail, self.stop
        self._server = server
        self._reload_is_postponed = False
        self._drain_seconds: float | None = None
        self._operation: asyncio.Task[None] | None = None
        self._earlier: list[asyncio.Task[None]] = []
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Start the server; return once it has stopped. Raises what its start raises, or what made it fail."""
        self._begin(self._server.start(), LifecycleEvent.STARTED)
        try:
            await self._finished
        finally:
            self.phase = LifecyclePhase.STOPPED
            # `_on_end` has reported the errors of those that are done.
            await cancel_tasks(task for task in (*self._earlier, self._operation) if task and not task.done())
            await self._server.close()
        self._log("stopped")

    def unready(self) -> str:
        """Return why no client is accepted; empty when they are."""
        return _UNREADY.get(self.phase) or self._server.backend.unready()

    def reload(self) -> None:
        """Have the configuration reloaded: now, or after the start or the reload under way."""
        self._handle(LifecycleEvent.RELOAD)

    def stop(self, seconds: float | None = None) -> None:
        """Stop after a drain of `seconds`, by default the timeout of the backend; a second call stops at once."""
        self._drain_seconds = seconds
        self._handle(LifecycleEvent.STOP)

    def fail(self, error: BaseException) -> None:
        """Stop without a drain, and have `run` raise `error`."""
        if not self._finished.done():
            self._finished.set_exception(error)

    def _handle(self, event: LifecycleEvent) -> None:
        transition = self.TRANSITIONS.get((self.phase, event))
        if transition is not None:
            before = self.phase
            self.phase, action = transition
            if self.phase is not before:
                self._report()
            action(self)

    def _report(self) -> None:
        """Tell the service manager of a new phase."""
        if self.phase is LifecyclePhase.READY:
            failed = ", but the last reload failed: see the log" if self._server.reload_failed else ""
            self._notify("READY=1", f"STATUS=ready{failed}")
        elif self.phase is LifecyclePhase.RELOADING:
            self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")
        elif self.phase is LifecyclePhase.DRAINING:
            self._notify("STOPPING=1", "STATUS=draining")

    # The actions of the table.

    def _announce(self) -> None:
        try:
            self._server.announce()
        except Exception as error:  # such as a closed standard output
            self.fail(error)
        self._continue()

    def _continue(self) -> None:
        if self._reload_is_postponed:
            self._reload_is_postponed = False
            self._handle(LifecycleEvent.RELOAD)

    def _postpone_reload(self) -> None:
        self._reload_is_postponed = True

    def _reload(self) -> None:
        self._begin(self._reload_server(), LifecycleEvent.RELOADED)

    def _drain(self) -> None:
        self._server.release()
        self._begin(self._drain_backend(), LifecycleEvent.DRAINED)

    def _stop_at_once(self) -> None:
        self._log("stopping at once")
        self._begin(self._server.drain(0), LifecycleEvent.DRAINED)

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)

    TRANSITIONS: Final[
        dict[tuple[LifecyclePhase, LifecycleEvent], tuple[LifecyclePhase, Callable[["Lifecycle"], None]]]
    ] = {
        (LifecyclePhase.STARTING, LifecycleEvent.STARTED): (LifecyclePhase.READY, _announce),
        (LifecyclePhase.STARTING, LifecycleEvent.RELOAD): (LifecyclePhase.STARTING, _postpone_reload),
        (LifecyclePhase.STARTING, LifecycleEvent.STOP): (LifecyclePhase.STOPPED, _finish),
        (LifecyclePhase.READY, LifecycleEvent.RELOAD): (LifecyclePhase.RELOADING, _reload),
        (LifecyclePhase.READY, LifecycleEvent.STOP): (LifecyclePhase.DRAINING, _drain),
        (LifecyclePhase.RELOADING, LifecycleEvent.RELOAD): (LifecyclePhase.RELOADING, _postpone_reload),
        (LifecyclePhase.RELOADING, LifecycleEvent.RELOADED): (LifecyclePhase.READY, _continue),
        (LifecyclePhase.RELOADING, LifecycleEvent.STOP): (LifecyclePhase.DRAINING, _drain),
        (LifecyclePhase.DRAINING, LifecycleEvent.STOP): (LifecyclePhase.STOPPING, _stop_at_once),
        (LifecyclePhase.DRAINING, LifecycleEvent.DRAINED): (LifecyclePhase.STOPPED, _finish),
        (LifecyclePhase.STOPPING, LifecycleEvent.DRAINED): (LifecyclePhase.STOPPED, _finish),
    }
    """Phase and event to the next phase and the action. Events that a phase does not have are ignored."""

    # What the actions run.

    async def _reload_server(self) -> None:
        self._server.reload_failed = True  # until it has succeeded
        try:
            await self._server.reload()
            self._server.reloaded, self._server.reload_failed = time.time(), False
        except (HeadgateError, OSError) as error:
            log(f"error: {error}; the configuration in force stays as it is")
        except Exception as error:
            log(f"internal error in a reload: {type(error).__name__}: {error}")

    async def _drain_backend(self) -> None:
        # A reload; and, if a second stop came before this began, this drain itself, which cannot wait for its own end.
        await cancel_tasks([task for task in self._earlier if task is not asyncio.current_task()])
        seconds = self._server.backend.drain_timeout if self._drain_seconds is None else self._drain_seconds
        self._log(f"draining: requests in progress have {seconds:g} s to end" if seconds else "draining")
        await self._server.drain(seconds)

    def _begin(self, operation: Coroutine[Any, Any, None], end: LifecycleEvent) -> None:
        """Run an operation; its end is the event `end`, unless another operation has begun meanwhile."""
        if self._operation is not None and not self._operation.done():
            self._earlier.append(self._operation)
        self._operation = asyncio.get_running_loop().create_task(operation)
        self._operation.add_done_callback(lambda task: self._on_end(task, end))

    def _on_end(self, task: asyncio.Task[None], end: LifecycleEvent) -> None:
        if task in self._earlier:
            self._earlier.remove(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.fail(error)
        elif task is self._operation:
            self._handle(end)


async def cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends; log what they raise, now or before."""
    running = list(tasks)
    for task in running:
        task.cancel()
    for task, outcome in zip(running, await asyncio.gather(*running, return_exceptions=True), strict=True):
        if isinstance(outcome, Exception):
            log(f"internal error: {task!r}")


def run_server(server: Server) -> int:
    """Run a server until a signal stops it; returns the exit code.

    SIGTERM and SIGINT stop it after a drain, a second one at once; SIGHUP reloads its configuration. A service manager
    is notified of each phase, and if it has a watchdog, regularly.
    """
    manager = ServiceManager(os.environ)

    async def watchdog() -> None:
        while True:
            manager.notify("WATCHDOG=1")
            await asyncio.sleep(manager.watchdog / 2)

    async def main() -> int:
        lifecycle = Lifecycle(server, manager.notify, log)
        if manager.watchdog:
            server.start_task(watchdog())
        running_loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running_loop.add_signal_handler(number, lifecycle.stop)
        # Not by the loop: it restores the default action, which would end the process as if it had failed.
        signal.signal(signal.SIGHUP, lambda *_: running_loop.call_soon_threadsafe(lifecycle.reload))
        await lifecycle.run()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return 0

    return run_event_loop(main, loop=server.loop)


def run_event_loop(main: Callable[[], Coroutine[Any, Any, int]], *, loop: Loop = "auto") -> int:
    """Run the coroutine that `main` returns; `auto` is uvloop if it is installed, otherwise asyncio.

    Before that, the limit of open files is raised for this process and those that it starts. Inside, no line of the log
    waits for its reader, and the want of descriptors is logged. Raises `MissingExtra` when `loop` is "uvloop" and
    uvloop is not installed.
    """

    async def watched() -> int:
        running_loop = asyncio.get_running_loop()
        running_loop.set_exception_handler(_on_exception)
        watch = running_loop.create_task(_watch_descriptors())
        try:
            return await main()
        finally:
            watch.cancel()

    _raise_file_limit()
    with open_log(), _quiet_server_names(), asyncio.Runner(loop_factory=event_loop_factory(loop)) as runner:
        return runner.run(watched())


@contextmanager
def _quiet_server_names() -> Iterator[None]:
    """Write no traceback for server names of TLS that are not ASCII: Python does, so clients could fill the log."""
    before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if not isinstance(unraisable.exc_value, UnicodeDecodeError):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


async def _watch_descriptors() -> None:
    """Log once an hour that no descriptor is left: uvloop then resets new connections, and reports nothing."""
    seconds, due = 0, 0.0
    while True:
        await asyncio.sleep(1.0)
        try:
            socket.socket(socket.AF_UNIX).close()
        except OSError:
            seconds += 1
            if (moment := time.monotonic()) >= due:
                due = moment + _REPEAT_INTERVAL
                soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                log(
                    f"warning: no file descriptor is left, of {soft}: new connections wait, or are reset "
                    f"(for {seconds} s since the start); raise the limit of open files, such as LimitNOFILE= of systemd"
                )


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Leave the want of descriptors to `_watch_descriptors`: asyncio reports it a hundred times a second."""
    error = context.get("exception")
    if not (isinstance(error, OSError) and error.errno in _EXHAUSTED):
        loop.default_exception_handler(context)


def _raise_file_limit() -> None:
    """Raise the soft limit of open files, often 1024, to the hard limit: a proxied connection needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems report a hard limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def event_loop_factory(loop: Loop) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop; None stands for asyncio's own."""
    if loop == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if loop == "uvloop":
            raise MissingExtra("uvloop", "gate.loop = 'uvloop'") from None
        return None
    return uvloop.new_event_loop
