"""How a server runs and ends: its loop, its signals, and what it says on stderr meanwhile.

SIGTERM and SIGINT ask it to end in good order, a second one to end at once; SIGHUP asks it to read its configuration
again.
"""

import asyncio
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from headgate.config.tree import Loop
from headgate.errors import MissingExtra

__all__ = ["Reloads", "Signals", "run", "say"]


def say(sentence: str) -> None:
    """Write one line to stderr, at once; who has closed stderr does not want to know."""
    try:
        sys.stderr.write(f"{sentence}\n")
        sys.stderr.flush()
    except OSError:
        return


def run(main: Callable[[], Coroutine[Any, Any, int]], *, loop: Loop = "auto") -> int:
    """Run what `main` gives to its end; `auto` is uvloop where that is installed, else asyncio's own loop.

    From then on this process, and those it starts, may open as many files as the system allows. Raises `MissingExtra`
    when uvloop is asked for by name and not installed.
    """
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory(loop)) as runner:
        return runner.run(main())


def _raise_file_limit() -> None:
    """Raise the soft limit of open files, which is often 1024, to the hard one: a proxied connection takes two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems report a hard limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop_factory(loop: Loop) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if loop == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if loop == "uvloop":
            raise MissingExtra("uvloop", "gate.loop = 'uvloop'") from None
        return None
    return uvloop.new_event_loop


class Reloads:
    """Runs `reload` when asked, once at a time; asked meanwhile, once more afterwards."""

    def __init__(self, reload: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._reload = reload
        self._is_asked = self._is_ended = False
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Reload soon; to be called in the event loop."""
        if self._is_ended:
            return
        self._is_asked = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._is_asked:
            self._is_asked = False
            try:
                await self._reload()
            except Exception as error:
                say(f"headgate: internal error in a reload: {type(error).__name__}: {error}")

    async def end(self) -> None:
        """Reload no more; a reload under way is cancelled."""
        self._is_ended = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Signals:
    """The signals of a server, from now until its loop ends; `reload` is called on SIGHUP."""

    def __init__(self, reload: Callable[[], None]) -> None:
        self.asked = asyncio.Event()
        """Set when the server should end."""
        self.insisted = asyncio.Event()
        """Set when it should end at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, reload)

    def _end(self) -> None:
        if self.asked.is_set():
            self.insisted.set()
        self.asked.set()

    async def unless_insisted(self, ending: Coroutine[Any, Any, None]) -> None:
        """Await `ending`, but no longer than until somebody insists."""
        task = asyncio.ensure_future(ending)
        insisted = asyncio.ensure_future(self.insisted.wait())
        await asyncio.wait([task, insisted], return_when=asyncio.FIRST_COMPLETED)
        insisted.cancel()
        if task.done():
            task.result()
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
