"""Run a server through its life-cycle in this process, without signals."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stderr

from headgate.config import Configuration, parse
from headgate.runtime.lifecycle import Lifecycle, LifecyclePhase, Server

Steps = Callable[[Lifecycle], Awaitable[None]]


@asynccontextmanager
async def running(make: Callable[[], Server]) -> AsyncIterator[tuple[Lifecycle, list[str]]]:
    """Run a server while inside; give its life-cycle, and a list that has the messages that it logged at the end."""
    messages: list[str] = []
    with redirect_stderr(io.StringIO()) as written:
        server = make()
        lifecycle = Lifecycle(server)
        ending = asyncio.ensure_future(lifecycle.run())
        async with asyncio.timeout(20):
            while lifecycle.phase is LifecyclePhase.STARTING and not ending.done():  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.001)
            if ending.done():
                await ending
            yield lifecycle, messages
            lifecycle.stop(0)
            await ending
    messages += written.getvalue().splitlines()


def run(make: Callable[[], Server], steps: Steps | None = None) -> list[str]:
    """Start a server, await `steps(lifecycle)` when it is ready, stop it; return the messages that it logged."""

    async def main() -> list[str]:
        async with running(make) as (lifecycle, messages):
            if steps is not None:
                await steps(lifecycle)
        return messages

    return asyncio.run(main())


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
