"""What every process of a proxy opens first: the files of its certificate, and its log."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headgate.config.proxy import Proxy
from headgate.proxy.log import LogWriter
from headgate.runtime.prefetch_proxy.certificate import self_signed

__all__ = ["certificate_files", "open_log"]


@contextmanager
def certificate_files(settings: Proxy, host: str) -> Iterator[tuple[str, str] | None]:
    """Give the files of the certificate and its key while inside; None in plaintext."""
    if settings.self_signed:
        with self_signed(host) as files:
            yield files
    else:
        yield None if settings.plaintext else (settings.cert, settings.key)


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
