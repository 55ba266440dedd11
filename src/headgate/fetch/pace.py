"""How slowly a body may arrive: the limits for responses that are read to their end, whatever their length."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from headgate import __version__
from headgate.errors import FetchError
from headgate.fetch.call_thread import CallThread

TIMEOUT: Final = 30.0
"""Seconds without a byte after which a server is given up; a slow one is given up so long after `MIN_RATE` allows."""

MIN_RATE: Final = 4_096
"""Minimum bytes per second, on average over a body."""

USER_AGENT: Final = f"headgate/{__version__}"
"""What headgate calls itself."""


class Pace:
    """Gives up a body that arrives too slowly; the time that its reader takes between chunks does not count."""

    def __init__(self, url: str, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._patience = patience
        self._clock = clock
        self._waited = 0.0
        self._received = 0

    def timed(self, chunks: Iterator[bytes], thread: CallThread) -> bytes | None:
        """Wait for the next chunk; None after the last. Raises `FetchError` where they arrive too slowly."""
        began = self._clock()
        try:
            chunk = thread.call(lambda: next(chunks, None), self._longest)
        except TimeoutError:
            raise self._too_slow() from None
        return self._take(began, chunk)

    async def atimed(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Wait for the next chunk; None after the last. Raises `FetchError` where they arrive too slowly."""
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
        """Seconds to wait for one chunk: what is before its first byte may come byte by byte, too."""
        return 2 * self._patience + self._received / MIN_RATE - self._waited

    def _take(self, began: float, chunk: bytes | None) -> bytes | None:
        self._waited += self._clock() - began
        self._received += len(chunk or b"")
        if self._waited > self._patience + self._received / MIN_RATE:
            raise self._too_slow()
        return chunk

    def _too_slow(self) -> FetchError:
        return FetchError(f"{self._url}: slower than {MIN_RATE} bytes a second; given up after {self._received} bytes")
