"""How every process of a proxy says what it has to say, and that somebody may be slow to read it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headgate.proxy.log import LogWriter

__all__ = ["log_lines"]


@contextmanager
def log_lines() -> Iterator[LogWriter]:
    """Have the log, and faults of our own in it: whoever reads stderr is waited for by nobody."""
    lines = LogWriter()
    loop = asyncio.get_running_loop()

    def complain(_loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        lines.say(f"headgate: a fault of its own: {told.get('message')}: {told.get('exception')!r}")

    loop.set_exception_handler(complain)
    try:
        yield lines
    finally:
        lines.close()
