"""The event loop of a server process."""

import asyncio
import resource
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from headgate.config.tree import Loop
from headgate.errors import MissingExtra


def run(main: Callable[[], Coroutine[Any, Any, int]], *, loop: Loop = "auto") -> int:
    """Run the coroutine that `main` returns; `auto` is uvloop where it is installed, else asyncio's own loop.

    Before that, the limit of open files is raised for this process and those that it starts. Raises `MissingExtra`
    when `loop` is "uvloop" and uvloop is not installed.
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
