"""Limits on time for responses that are read to their end, whatever their length.

A client's timeout limits one read of a socket, so a server that sends a byte now and then never exceeds it. `Pace`
limits how slowly a body may arrive; `call_in_thread` limits how long the caller of a blocking client waits.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, Final, TypeVar

from headgate.errors import FetchError
from headgate.version import VERSION

_Result = TypeVar("_Result")


def in_daemon_thread(function: Callable[[], _Result], name: str) -> Future[_Result]:
    """Call `function` in a thread, in a copy of the caller's context; return what becomes of it.

    Unlike a thread of an executor, it does not keep the process running when its result is not awaited any more.
    """
    outcome: Future[_Result] = Future()
    context = copy_context()

    def run() -> None:
        outcome.set_running_or_notify_cancel()  # now it cannot be cancelled, and its result can be set
        try:
            outcome.set_result(context.run(function))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


def call_in_thread(function: Callable[[], _Result], timeout: float) -> _Result:
    """Return what `function` returns, or raise what it raises; `TimeoutError` after so many seconds.

    A result that comes too late is closed.
    """
    outcome = in_daemon_thread(function, "headgate-fetch")
    try:
        return outcome.result(timeout)
    except TimeoutError:
        outcome.add_done_callback(_close)
        raise


def _close(outcome: Future[Any]) -> None:
    if outcome.exception() is None and hasattr(outcome.result(), "close"):
        outcome.result().close()


FETCH_TIMEOUT: Final = 30.0
"""Seconds without a byte after which a response is given up, or in addition to the time that `MIN_RATE` allows."""

MIN_RATE: Final = 4_096
"""Minimum bytes per second, on average over a body."""

USER_AGENT: Final = f"headgate/{VERSION}"
"""The User-Agent of headgate itself."""


class Pace:
    """Limits how slowly a body may arrive; the time that its reader takes between chunks does not count."""

    def __init__(self, url: str, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._patience = patience
        self._clock = clock
        self._waited = 0.0
        self._received = 0

    def timed(self, chunks: Iterator[bytes]) -> bytes | None:
        """Return the next chunk, or None at the end; raises `FetchError` if the body arrives too slowly."""
        began = self._clock()
        allowed = self._patience + self._received / MIN_RATE
        try:
            # The head before the first chunk may also arrive byte by byte.
            chunk = call_in_thread(lambda: next(chunks, None), self._patience + allowed - self._waited)
        except TimeoutError:
            raise self._too_slow() from None
        self._waited += self._clock() - began
        self._received += len(chunk or b"")
        if self._waited > self._patience + self._received / MIN_RATE:
            raise self._too_slow()
        return chunk

    def _too_slow(self) -> FetchError:
        return FetchError(f"{self._url}: slower than {MIN_RATE} bytes a second; given up after {self._received} bytes")
