"""What the transports of all HTTP libraries share: request options, refused bodies, and responses with advice.

A transport sends a request when its `Attempt` says so, and not before. It also fetches traffic advice through the
client of the request that needs it: one GET with nothing of the user's in it, no cookie and no credentials, and no
redirect is followed.
"""

import time
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any, Final

from headgate.advice.fetching import ADVICE_TIMEOUT, AdviceResponse, ResponseCollector, too_late
from headgate.errors import ConfigurationError, RetryLater
from headgate.fetch.local_errors import is_local
from headgate.http.fields import Pairs

# A body that was read to its end leaves a connection that can serve again. For one that is longer than this, or takes
# longer, the connection is closed: a server that sends a byte now and then would delay the retry for hours.
MAX_READ_SIZE: Final = 65_536
"""Bytes that are read at most of a refused response's body before its request is sent again."""

READ_TIMEOUT: Final = 0.5
"""Seconds after which no more of it is read."""


def is_interactive(options: object) -> bool:
    """Return whether the options of a request, such as `{"interactive": True}` or None, say that a user waits for it.

    Raises `ConfigurationError` for invalid options: the request is not sent without what they ask for.
    """
    if options is None:
        return False
    if isinstance(options, Mapping) and not options.keys() - {"interactive"}:
        interactive = options.get("interactive", False)
        if isinstance(interactive, bool):
            return interactive
    raise ConfigurationError(
        f"invalid headgate options of a request {options!r}; expected {{'interactive': True}} or False"
    )


def chunks_of(body: Any) -> Iterator[bytes]:
    """Yield the body of a response of urllib3 or the standard library as it arrives."""
    read = getattr(body, "read1", body.read)  # which waits for no more than there is
    while chunk := read(MAX_READ_SIZE):
        yield chunk


class AdviceReception:
    """Receives the response to one request for advice, from any client; it begins when this is made."""

    def __init__(self) -> None:
        self._collector = ResponseCollector()
        self._deadline = time.monotonic() + ADVICE_TIMEOUT

    def receive(self, status: int, fields: Pairs, chunks: Iterable[bytes]) -> AdviceResponse:
        """Return the response: with its body, if that is needed and complete within the time limit."""
        collector = self._collector
        if not collector.head(status, fields):
            return collector.broken()
        for chunk in chunks:
            if not collector.add(chunk):
                break
            if time.monotonic() > self._deadline:
                return collector.broken(too_late())
        return collector.whole()

    async def receive_async(self, status: int, fields: Pairs, chunks: AsyncIterable[bytes]) -> AdviceResponse:
        """Return the same; the caller limits the time."""
        collector = self._collector
        if not collector.head(status, fields):
            return collector.broken()
        async for chunk in chunks:
            if not collector.add(chunk):
                break
        return collector.whole()

    def failed(self, error: Exception, *, is_ours: bool) -> AdviceResponse:
        """Return what was received before the origin failed; raise the error again where `is_ours` or a local one."""
        if is_ours or isinstance(error, RetryLater) or is_local(error):
            raise error
        reason = getattr(error, "reason", error)  # of an URLError, whose own text says nothing more
        if isinstance(reason, TimeoutError):
            return self._collector.broken(too_late())
        return self._collector.broken(str(reason) or type(error).__name__)
