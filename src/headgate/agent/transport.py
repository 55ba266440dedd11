"""What the transports of all HTTP libraries share: request options, refused bodies, and responses with advice.

A transport sends a request when its `Attempt` says so, and not before. It also fetches traffic advice through the
client of the request that needs it: one GET with nothing of the user's in it, no cookie and no credentials, and no
redirect is followed.
"""

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar

from headgate.advice.fetching import ADVICE_TIMEOUT, AdviceRequest, AdviceResponse, ResponseCollector, too_late
from headgate.agent.attempt import Attempt, Failure
from headgate.errors import ConfigurationError, RetryLater
from headgate.fetch.local_errors import is_local
from headgate.http.fields import Pairs
from headgate.throttle.fields import Headers

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


def set_fields(attempt: Attempt, headers: Any) -> None:
    """Set the agent's own fields in a request's headers, which have `get`, `pop` and `update`; before each sending."""
    given = headers.get("User-Agent")
    headers.update(attempt.own_fields(given.decode("latin-1") if isinstance(given, bytes) else given))
    if attempt.is_unsigned:
        for name in SIGNATURE_FIELDS:  # of the request before a redirect
            headers.pop(name, None)


SIGNATURE_FIELDS: Final = ("Signature-Agent", "Signature-Input", "Signature")
"""The fields of a signed request."""

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
Head: TypeAlias = Callable[[_Response], tuple[int, Headers] | None]
"""Returns status and fields of a response; None if it comes from a cache and does not count."""


def send_politely(
    attempt: Attempt,
    request: _Request,
    headers: Any,
    send: Callable[[_Request], _Response],
    *,
    head: Head[_Response],
    drain: Callable[[_Request, _Response], None],
    failure: Callable[[_Request, Exception], Failure],
) -> _Response:
    """Send a request when `attempt` permits it, and again when it says so; return the response that is the caller's.

    `headers` are the request's, see `set_fields`. The response before a retry is drained when the retry is sent, so
    that it is the result if that is held too long.
    """
    response: _Response | None = None
    while True:
        try:
            while (wait := attempt.wait()) is not None:
                wait.block()
            if response is not None:
                refused, response = response, None
                drain(request, refused)
            if attempt.adds_fields:
                set_fields(attempt, headers)
            response = send(request)
            counted = head(response)
            if attempt.lost() if counted is None else attempt.received(*counted):
                return response
        except BaseException as error:
            kind = failure(request, error) if _is_failure(error) else "ours"
            if not attempt.lost(error, kind):
                continue
            if response is not None:
                if isinstance(error, RetryLater):
                    return response
                drain(request, response)
            raise


async def send_politely_async(
    attempt: Attempt,
    request: _Request,
    headers: Any,
    send: Callable[[_Request], Awaitable[_Response]],
    *,
    head: Head[_Response],
    drain: Callable[[_Request, _Response], Awaitable[None]],
    failure: Callable[[_Request, Exception], Failure],
) -> _Response:
    """Do the same in an event loop."""
    response: _Response | None = None
    while True:
        try:
            while (wait := attempt.wait()) is not None:
                await wait.settle()
            if response is not None:
                refused, response = response, None
                await drain(request, refused)
            if attempt.adds_fields:
                set_fields(attempt, headers)
            response = await send(request)
            counted = head(response)
            if attempt.lost() if counted is None else attempt.received(*counted):
                return response
        except BaseException as error:
            kind = failure(request, error) if _is_failure(error) else "ours"
            if not attempt.lost(error, kind):
                continue
            if response is not None:
                if isinstance(error, RetryLater):
                    return response
                await drain(request, response)
            raise


def _is_failure(error: BaseException) -> TypeGuard[Exception]:
    return isinstance(error, Exception) and not isinstance(error, RetryLater)


def chunks_of(body: Any) -> Iterator[bytes]:
    """Yield the body of a response of urllib3 or the standard library as it arrives."""
    read = getattr(body, "read1", body.read)  # which waits for no more than there is
    while chunk := read(MAX_READ_SIZE):
        yield chunk


class AdviceReception:
    """Receives the response to one request for advice, from any client; it begins when this is made."""

    def __init__(self, request: AdviceRequest) -> None:
        self._collector = ResponseCollector(request.needs_body, cuts=request.any_type)
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
