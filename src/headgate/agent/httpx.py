"""Transports for httpx2 and httpx that send a request when the composition says so, and not before.

A client gives its transport one request at a time: each hop of a redirect, and each step of an authentication, comes
here as a request of its own. Nothing of a response's body is read here, unless its request is sent again.
"""

import threading
import time
from contextlib import aclosing, closing, suppress
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from headgate.agent.advice import StartFetch, in_task, in_thread
from headgate.agent.advice.client_httpx import ADVICE_EXTENSION, fetch_through, fetch_through_async
from headgate.agent.courtesy import Courtesy
from headgate.agent.library import library_of
from headgate.agent.marks import is_interactive
from headgate.agent.passage import Passage
from headgate.agent.refused_body import MAX_READ_SIZE, READ_TIMEOUT
from headgate.errors import NoContact

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, BaseTransport
else:
    # Clients of either library take whatever has the methods.
    AsyncBaseTransport = BaseTransport = object

__all__ = ["AsyncTransport", "Transport"]


class Transport(BaseTransport):
    """For `httpx2.Client(transport=Transport(courtesy))`, and the same with httpx.

    `inner` is the transport that sends, by default the library's own. What a client would have told that one, tell it:
    `Transport(courtesy, httpx2.HTTPTransport(http2=True))`, and so with `verify`, `limits` and `proxy`; a client with a
    transport of its own looks for no proxy in the environment. A bundle, and a cache such as hishel's, are best in
    front of this; what a cache behind it had stored counts for nothing.

    A request that is held raises what is both `NoContact` and the library's `TransportError`, and is not sent.
    What a request waits for is no part of its timeouts. With `extensions={"headgate": {"interactive": True}}` it is one
    that a user waits for. One is sent again only if its body was given whole: as bytes, text, a form or JSON.
    """

    def __init__(self, courtesy: Courtesy, inner: Any = None) -> None:
        self._courtesy = courtesy
        self._inner = inner
        self._start_fetch: StartFetch | None = None
        self._is_closed = False
        self._lock = threading.Lock()

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
        """Send a request as soon as it may go; raises `NoContact` where that is too late."""
        if ADVICE_EXTENSION in request.extensions:  # what a request waits for does not wait
            return (self._inner or self._begun(request)).handle_request(request)
        start_fetch = None if self._courtesy.advice is None else self._start_fetch or self._make_start_fetch(request)
        passage = _passage(self._courtesy, request, start_fetch)
        while True:
            try:
                while (wait := passage.wait()) is not None:
                    wait.block()
            except NoContact as held:
                raise _held(held, request) from None
            with passage:
                response = (self._inner or self._begun(request)).handle_request(request)
            try:
                if _is_last(passage, response):
                    return response
            except BaseException:
                response.close()
                raise
            with suppress(Exception), closing(response):  # what is wrong with it is the next one's to show
                if _is_short(response):
                    deadline = time.monotonic() + READ_TIMEOUT
                    for _ in response.stream:
                        if time.monotonic() > deadline:
                            break

    def _make_start_fetch(self, request: Any) -> StartFetch:
        """Make what fetches advice through the transport that sends."""
        is_closed = partial(getattr, self, "_is_closed")
        fetch = partial(fetch_through, self._begun(request), library=library_of(request), is_closed=is_closed)
        self._start_fetch = in_thread(fetch)
        return self._start_fetch

    def _begun(self, request: Any) -> Any:
        with self._lock:
            if self._inner is None:
                self._inner = library_of(request).HTTPTransport()
            return self._inner


class AsyncTransport(AsyncBaseTransport):
    """`Transport` for `httpx2.AsyncClient`, and the same with httpx; under asyncio, and under trio."""

    def __init__(self, courtesy: Courtesy, inner: Any = None) -> None:
        self._courtesy = courtesy
        self._inner = inner
        self._start_fetch: StartFetch | None = None
        self._is_closed = False

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
        """Send a request as soon as it may go; raises `NoContact` where that is too late."""
        if self._inner is None:
            self._inner = library_of(request).AsyncHTTPTransport()
        if ADVICE_EXTENSION in request.extensions:  # what a request waits for does not wait
            return await self._inner.handle_async_request(request)
        start_fetch = None if self._courtesy.advice is None else self._start_fetch or self._make_start_fetch(request)
        passage = _passage(self._courtesy, request, start_fetch)
        while True:
            try:
                while (wait := passage.wait()) is not None:
                    await wait.settle()
            except NoContact as held:
                raise _held(held, request) from None
            with passage:
                response = await self._inner.handle_async_request(request)
            try:
                if _is_last(passage, response):
                    return response
            except BaseException:
                await response.aclose()
                raise
            with suppress(Exception):  # what is wrong with it is the next one's to show
                async with aclosing(response):
                    if _is_short(response):
                        await _read(response)

    def _make_start_fetch(self, request: Any) -> StartFetch:
        """Make what fetches advice through the transport that sends."""
        is_closed = partial(getattr, self, "_is_closed")
        fetch = partial(fetch_through_async, self._inner, library=library_of(request), is_closed=is_closed)
        self._start_fetch = in_task(fetch)
        return self._start_fetch


def _passage(courtesy: Courtesy, request: Any, start_fetch: StartFetch | None) -> Passage:
    marks = request.extensions.get("headgate")
    return courtesy.passage(
        request.method,
        str(request.url),
        interactive=marks is not None and is_interactive(marks),
        # Of an iterator or a file nothing may be left, and of other kinds of bodies nothing is known.
        repeatable=courtesy.retry > 0 and isinstance(request.stream, library_of(request).ByteStream),
        start_fetch=start_fetch,
    )


def _is_last(passage: Passage, response: Any) -> bool:
    had = response.extensions
    # hishel's marks, from its version 1.0 and before, on what it had stored; but then it may have asked if that holds.
    if "hishel_from_cache" in had or "from_cache" in had:
        is_stored = had.get("hishel_from_cache") or had.get("from_cache")
        if is_stored and not (had.get("hishel_revalidated") or had.get("revalidated")):
            return True
    return passage.received(response.status_code, response.headers.raw)


def _is_short(response: Any) -> bool:
    # Told before: the asynchronous iterators of a body that nobody reads to its end cannot all be closed from here.
    length = response.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= MAX_READ_SIZE


async def _read(response: Any) -> None:
    import anyio

    with anyio.move_on_after(READ_TIMEOUT):
        async for _ in response.stream:
            pass


class _Held(NoContact):
    """What is raised, but for the library's own error: that is put in when it is known which library's."""

    request: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (library_of(self).__name__, *self.args), self.__dict__


def _held(held: NoContact, request: Any) -> Any:
    """Make what is raised for a request out of what the composition raises."""
    made = _held_in(library_of(request))(*held.args)
    made.request = request
    return made


@cache
def _held_in(library: ModuleType) -> type[_Held]:
    return type("Held", (_Held, library.TransportError), {"__module__": __name__})


def _again(name: str, *args: Any) -> NoContact:
    return _held_in(import_module(name))(*args)
