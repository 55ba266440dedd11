"""Polite transports for httpx2 and httpx.

A client gives its transport one request at a time: each hop of a redirect, and each step of an authentication, comes
here as a request of its own. Nothing of a response's body is read here, unless its request is sent again.
"""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, closing, suppress
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.agent.advice_client import StartFetch, in_task, in_thread
from headgate.agent.attempt import Attempt
from headgate.agent.courtesy import Courtesy, check_courtesy
from headgate.agent.httpx_library import ADVICE_EXTENSION, failure_of, fetch_through, fetch_through_async, library_of
from headgate.agent.transport import (
    MAX_READ_SIZE,
    READ_TIMEOUT,
    is_interactive,
    send_politely,
    send_politely_async,
)
from headgate.errors import RetryLater

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, BaseTransport

else:
    # Clients of either library take any object that has the methods.
    AsyncBaseTransport = BaseTransport = object


_MARKS: Final = frozenset({"hishel_from_cache", "from_cache"})
"""What hishel marks stored responses with, from its version 1.0 and before."""


class _Polite:
    """The common part of both transports."""

    _own_transport: str
    """The library's transport class to use if no transport is given."""

    def __init__(self, courtesy: Courtesy, inner: Any = None) -> None:
        self._courtesy = check_courtesy(courtesy)
        self._inner = inner
        self._start_fetch: StartFetch | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def _sender(self, request: Any) -> Any:
        """Return the transport that sends."""
        with self._lock:
            if self._inner is None:
                self._inner = getattr(library_of(request), self._own_transport)()
            return self._inner

    def _attempt(self, request: Any) -> Attempt:
        options = request.extensions.get("headgate")
        may_retry = self._courtesy.may_repeat
        attempt = self._courtesy.attempt(
            request.method,
            str(request.url),
            interactive=options is not None and is_interactive(options),
            # An iterator or a file may be consumed, and other kinds of bodies are unknown.
            repeatable=may_retry and isinstance(request.stream, library_of(request).ByteStream),
            idempotent=may_retry and "idempotency-key" in request.headers,
            start_fetch=self._advice_fetch(request) if self._courtesy.fetches_advice else None,
        )
        attempt.ends_with_body = True
        return attempt

    def _advice_fetch(self, request: Any) -> StartFetch:
        """Return what fetches advice through the transport that sends."""
        if self._start_fetch is None:
            self._start_fetch = self._make_fetch(
                self._sender(request), library=library_of(request), is_closed=partial(getattr, self, "_is_closed")
            )
        return self._start_fetch

    def _make_fetch(self, inner: Any, **options: Any) -> StartFetch:
        raise NotImplementedError


class Transport(_Polite, BaseTransport):
    """For `httpx2.Client(transport=Transport(courtesy))`, and the same with httpx.

    `inner` is the transport that sends, by default the library's own. Pass it the options that a client would pass on:
    `Transport(courtesy, httpx2.HTTPTransport(http2=True))`, likewise `verify`, `limits` and `proxy`. A client with a
    given transport does not use the proxies of the environment; `headgate.agent.httpx.Client` does. Put bundles and
    caches such as hishel's in front of this; responses that a cache behind it had stored are not counted.

    A held request raises an error that is both `RetryLater` and the library's `TransportError`, and is not sent. Its
    timeouts do not include the time that it waits. Use `extensions={"headgate": {"interactive": True}}` for a request
    that a user waits for. Only requests whose body is bytes, text, a form or JSON are sent again.
    """

    _own_transport = "HTTPTransport"

    def __enter__(self) -> Self:
        if self._inner is not None:
            self._inner.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_closed = True
        if self._inner is not None:
            self._inner.__exit__(*raised)

    def close(self) -> None:
        """Close the transport that sends."""
        self._is_closed = True
        if self._inner is not None:
            self._inner.close()

    def handle_request(self, request: Any) -> Any:
        """Send a request when it may be sent; raises `RetryLater` if that is too late."""
        inner = self._inner or self._sender(request)
        if ADVICE_EXTENSION in request.extensions:  # requests wait for this one
            return inner.handle_request(request)
        attempt = self._attempt(request)
        try:
            response = send_politely(
                attempt,
                request,
                request.headers,
                inner.handle_request,
                head=_head,
                drain=_drain,
                failure=failure_of,
            )
        except RetryLater as held:
            raise _held(held, request) from None
        return response if attempt.place is None else _until_its_end(response, attempt)

    def _make_fetch(self, inner: Any, **options: Any) -> StartFetch:
        return in_thread(partial(fetch_through, inner, **options))


class AsyncTransport(_Polite, AsyncBaseTransport):
    """`Transport` for `httpx2.AsyncClient` and `httpx.AsyncClient`, with asyncio or trio."""

    _own_transport = "AsyncHTTPTransport"

    async def __aenter__(self) -> Self:
        if self._inner is not None:
            await self._inner.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._is_closed = True
        if self._inner is not None:
            await self._inner.__aexit__(*raised)

    async def aclose(self) -> None:
        """Close the transport that sends."""
        self._is_closed = True
        if self._inner is not None:
            await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request when it may be sent; raises `RetryLater` if that is too late."""
        inner = self._inner or self._sender(request)
        if ADVICE_EXTENSION in request.extensions:  # requests wait for this one
            return await inner.handle_async_request(request)
        attempt = self._attempt(request)
        try:
            response = await send_politely_async(
                attempt,
                request,
                request.headers,
                inner.handle_async_request,
                head=_head,
                drain=_drain_async,
                failure=failure_of,
            )
        except RetryLater as held:
            raise _held(held, request) from None
        return response if attempt.place is None else _until_its_end(response, attempt)

    def _make_fetch(self, inner: Any, **options: Any) -> StartFetch:
        return in_task(partial(fetch_through_async, inner, **options))


def _is_stored(had: Mapping[str, Any]) -> bool:
    """Return whether a cache behind the transport had stored a response; it may have revalidated it."""
    is_stored = had.get("hishel_from_cache") or had.get("from_cache")
    return bool(is_stored) and not (had.get("hishel_revalidated") or had.get("revalidated"))


def _is_short(response: Any) -> bool:
    # By its Content-Length: asynchronous iterators of a body that is not read to its end cannot all be closed here.
    length = response.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= MAX_READ_SIZE


def _head(response: Any) -> tuple[int, Any] | None:
    had = response.extensions
    if not _MARKS.isdisjoint(had) and _is_stored(had):
        return None
    return response.status_code, response.headers.raw


def _drain(request: Any, response: Any) -> None:
    """Read a short body to its end, if that comes soon, and close the response."""
    limits = request.extensions.get("timeout", {})
    read, limits["read"] = limits.get("read"), READ_TIMEOUT  # what limits each read of the response
    with suppress(Exception), closing(response):  # an error in it is not the next response's
        if _is_short(response):
            deadline = time.monotonic() + READ_TIMEOUT
            for _ in response.stream:
                if time.monotonic() > deadline:
                    break
    limits["read"] = read


async def _drain_async(_request: Any, response: Any) -> None:
    import anyio

    with suppress(Exception):
        async with aclosing(response):
            if _is_short(response):
                with anyio.move_on_after(READ_TIMEOUT):
                    async for _ in response.stream:
                        pass


class _Body:
    """The body of a response whose request is in flight until this is closed."""

    def __init__(self, inner: Any, attempt: Attempt) -> None:
        self._inner = inner
        self._attempt = attempt

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._inner)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._inner)

    def close(self) -> None:
        self._attempt.ended()
        self._inner.close()

    async def aclose(self) -> None:
        self._attempt.ended()
        await self._inner.aclose()


@cache
def _body_of(library: ModuleType) -> Callable[..., Any]:
    return type("Body", (_Body, library.SyncByteStream, library.AsyncByteStream), {})


def _until_its_end(response: Any, attempt: Attempt) -> Any:
    if response.is_closed:  # its body came with it, as from a mock
        attempt.ended()
    else:
        response.stream = _body_of(library_of(response))(response.stream, attempt)
    return response


class _Held(RetryLater):
    """The error without its second base class, the error of the request's library."""

    request: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (library_of(self).__name__, *self.args), self.__dict__


def _held(held: RetryLater, request: Any) -> Any:
    """Return the library's error for a request, in place of a plain `RetryLater`."""
    error = _held_in(library_of(request))(*held.args)
    error.request = request
    return error


@cache
def _held_in(library: ModuleType) -> type[_Held]:
    return type("Held", (_Held, library.TransportError), {"__module__": __name__})


def _restore(name: str, *args: Any) -> RetryLater:
    return _held_in(import_module(name))(*args)
