"""The log of every process of a proxy."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headgate.proxy.log import LogWriter


@contextmanager
def open_log() -> Iterator[LogWriter]:
    """Give the log while inside, with exceptions of the event loop written to it. Logging never waits for stderr."""
    log = LogWriter()

    def log_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        log.say(f"headgate: internal error: {context.get('message')}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(log_exception)
    try:
        yield log
    finally:
        log.close()
