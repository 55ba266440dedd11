"""Limits on time for responses that are read to their end, whatever their length.

A client's timeout limits one read of a socket, so a server that sends a byte now and then never exceeds it. `Pace`
limits how slowly a body may arrive; `CallThread` makes the calls of blocking clients, so that the caller waits for a
limited time.
"""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from headgate import __version__
from headgate.errors import FetchError

_Result = TypeVar("_Result")


class CallThread:
    """A thread that makes one call after another; it ends after `close`."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        # A daemon, so that a call whose caller has given up does not keep the process running.
        threading.Thread(target=self._make_calls, name="headgate-fetch", daemon=True).start()

    def call(self, function: Callable[[], _Result], timeout: float) -> _Result:
        """Return what `function` returns, or raise what it raises; `TimeoutError` after so many seconds.

        It runs in a copy of the caller's context. After a `TimeoutError` there can be no further calls.
        """
        self._calls.put(_in_context(function))
        try:
            result, error = self._results.get(timeout=timeout)
        except Empty:
            raise TimeoutError from None
        if error is not None:
            raise error
        returned: _Result = result
        return returned

    def close(self) -> None:
        """End the thread after its current call; a result that comes too late is closed."""
        self._calls.put(None)

    def _make_calls(self) -> None:
        while (function := self._calls.get()) is not None:
            try:
                self._results.put((function(), None))
            except BaseException as error:
                self._results.put((None, error))
            del function
        while not self._results.empty():
            result, _ = self._results.get()
            if hasattr(result, "close"):
                result.close()


def _in_context(function: Callable[[], _Result]) -> Callable[[], _Result]:
    context = copy_context()
    return lambda: context.run(function)


FETCH_TIMEOUT: Final = 30.0
"""Seconds without a byte after which a response is given up, or in addition to the time that `MIN_RATE` allows."""

MIN_RATE: Final = 4_096
"""Minimum bytes per second, on average over a body."""

USER_AGENT: Final = f"headgate/{__version__}"
"""The User-Agent of headgate itself."""


class Pace:
    """Limits how slowly a body may arrive; the time that its reader takes between chunks does not count."""

    def __init__(self, url: str, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._patience = patience
        self._clock = clock
        self._waited = 0.0
        self._received = 0

    def timed(self, chunks: Iterator[bytes], thread: CallThread) -> bytes | None:
        """Return the next chunk, or None at the end; raises `FetchError` if the body arrives too slowly."""
        began = self._clock()
        try:
            chunk = thread.call(lambda: next(chunks, None), self._longest)
        except TimeoutError:
            raise self._too_slow() from None
        return self._take(began, chunk)

    async def atimed(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next chunk, or None at the end; raises `FetchError` if the body arrives too slowly."""
        import anyio

        began = self._clock()
        try:
            with anyio.fail_after(self._longest):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise self._too_slow() from None
        return self._take(began, chunk)

    @property
    def _longest(self) -> float:
        """Seconds to wait for one chunk; the head before the first one may also arrive byte by byte."""
        return 2 * self._patience + self._received / MIN_RATE - self._waited

    def _take(self, began: float, chunk: bytes | None) -> bytes | None:
        self._waited += self._clock() - began
        self._received += len(chunk or b"")
        if self._waited > self._patience + self._received / MIN_RATE:
            raise self._too_slow()
        return chunk

    def _too_slow(self) -> FetchError:
        return FetchError(f"{self._url}: slower than {MIN_RATE} bytes a second; given up after {self._received} bytes")
