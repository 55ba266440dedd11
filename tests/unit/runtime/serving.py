"""Run a server through its life-cycle in this process, without signals."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr

from headgate.config import Configuration, parse
from headgate.runtime.lifecycle import Lifecycle, LifecyclePhase, Server

Steps = Callable[[Lifecycle], Awaitable[None]]


def run(make: Callable[[], Server], steps: Steps | None = None) -> list[str]:
    """Start a server, await `steps(lifecycle)` when it is ready, stop it; return the messages that it logged."""

    async def main() -> None:
        server = make()
        lifecycle = Lifecycle(server)
        running = asyncio.ensure_future(lifecycle.run())
        async with asyncio.timeout(20):
            while lifecycle.phase is LifecyclePhase.STARTING and not running.done():  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.001)
            if steps is not None:
                await steps(lifecycle)
            lifecycle.stop(0)
            await running

    with redirect_stderr(io.StringIO()) as written:
        asyncio.run(main())
    return written.getvalue().splitlines()


def reading(*texts: str, file: str = "headgate.toml") -> Callable[[], tuple[Configuration, str]]:
    """Return a function that reads these configurations in turn; the last one again and again."""
    left = list(texts)
    return lambda: (parse(left.pop(0) if len(left) > 1 else left[0]), file)


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as a condition is true."""
    while not condition():  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(0.001)


async def reload(lifecycle: Lifecycle) -> None:
    """Reload the configuration, and wait until that has ended."""
    lifecycle.reload()
    await until(lambda: lifecycle.phase is LifecyclePhase.READY)
