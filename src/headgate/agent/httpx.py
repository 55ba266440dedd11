"""Transports for httpx2 and httpx that send a request when the composition says so, and not before.

A client gives its transport one request at a time: each hop of a redirect, and each step of an authentication, comes
here as a request of its own. Nothing of a response's body is read here, unless its request is sent again.
"""

import threading
from collections.abc import Mapping
from contextlib import aclosing, closing, suppress
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.agent.courtesy import Courtesy
from headgate.agent.library import library_of
from headgate.agent.passage import Passage
from headgate.errors import ConfigurationError, NoContact

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, BaseTransport
else:
    # Clients of either library take whatever has the methods.
    AsyncBaseTransport = BaseTransport = object

__all__ = ["AsyncTransport", "Transport"]

_SHORT: Final = 65_536
"""Bytes of a refused body that are read for the sake of its connection, which can then serve again."""


class Transport(BaseTransport):
    """For `httpx2.Client(transport=Transport(courtesy))`, and the same with httpx.

    `inner` is the transport that sends, by default the library's own. What a client would have told that one, tell it:
    `Transport(courtesy, httpx2.HTTPTransport(http2=True))`; so too for `proxy`, `verify` and `limits`. A transport that
    answers requests itself, out of a cache or a bundle, belongs in front, with this one as the transport behind it; if
    it is the `inner` and says so of its responses as hishel does, what it has stored counts for nothing.

    A request that is held raises what is both `NoContact` and the library's `TransportError`, and no socket is opened.
    With `extensions={"headgate": {"interactive": True}}` it is one that a user waits for; raises `ConfigurationError`
    where anything else stands there. A request is sent again only if its body was given whole: as bytes, text, a form
    or JSON. Any number of threads share a transport, and any number of transports a courtesy.
    """

    def __init__(self, courtesy: Courtesy, inner: Any = None) -> None:
        self._courtesy = courtesy
        self._inner = inner
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._inner is not None:
            self._inner.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._inner is not None:
            self._inner.__exit__(*raised)

    def close(self) -> None:
        """Close the transport that sends."""
        if self._inner is not None:
            self._inner.close()

    def handle_request(self, request: Any) -> Any:
        """Send a request as soon as it may go; raises `NoContact` where that is too late."""
        passage = _passage(self._courtesy, request)
        while True:
            try:
                while (wait := passage.wait()) is not None:
                    wait.block()
            except NoContact as held:
                raise _refusal(held, request) from None
            response = (self._inner or self._begun(request)).handle_request(request)
            if _is_last(passage, response):
                return response
            with closing(response), suppress(Exception):  # what is wrong with it is the next one's to show
                taken = 0
                for chunk in response.stream:
                    taken += len(chunk)
                    if taken > _SHORT:
                        break

    def _begun(self, request: Any) -> Any:
        with self._lock:
            if self._inner is None:
                self._inner = library_of(request).HTTPTransport()
            return self._inner


class AsyncTransport(AsyncBaseTransport):
    """`Transport` for `httpx2.AsyncClient`, and the same with httpx; under asyncio and under trio."""

    def __init__(self, courtesy: Courtesy, inner: Any = None) -> None:
        self._courtesy = courtesy
        self._inner = inner

    async def __aenter__(self) -> Self:
        if self._inner is not None:
            await self._inner.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._inner is not None:
            await self._inner.__aexit__(*raised)

    async def aclose(self) -> None:
        """Close the transport that sends."""
        if self._inner is not None:
            await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request as soon as it may go; raises `NoContact` where that is too late."""
        passage = _passage(self._courtesy, request)
        while True:
            try:
                while (wait := passage.wait()) is not None:
                    await wait.settle()
            except NoContact as held:
                raise _refusal(held, request) from None
            if self._inner is None:
                self._inner = library_of(request).AsyncHTTPTransport()
            response = await self._inner.handle_async_request(request)
            if _is_last(passage, response):
                return response
            async with aclosing(response):
                with suppress(Exception):
                    taken = 0
                    async for chunk in response.stream:
                        taken += len(chunk)
                        if taken > _SHORT:
                            break


def _passage(courtesy: Courtesy, request: Any) -> Passage:
    marks = request.extensions.get("headgate")
    return courtesy.passage(
        request.method,
        str(request.url),
        interactive=marks is not None and _is_interactive(marks),
        # Nothing is known of any other kind of body, and of an iterator or a file that nothing may be left of it.
        repeatable=courtesy.retry > 0 and isinstance(request.stream, library_of(request).ByteStream),
    )


def _is_interactive(marks: object) -> bool:
    if isinstance(marks, Mapping) and not marks.keys() - {"interactive"}:
        interactive = marks.get("interactive", False)
        if isinstance(interactive, bool):
            return interactive
    raise ConfigurationError(f"extensions: 'headgate': {marks!r} is not understood; try {{'interactive': True}}")


def _is_last(passage: Passage, response: Any) -> bool:
    extensions = response.extensions
    # As hishel marks what it had stored, from its version 1.0 and before; unless it asked whether that still holds.
    if extensions.get("hishel_from_cache") and not extensions.get("hishel_revalidated"):
        return True
    if extensions.get("from_cache") and not extensions.get("revalidated"):
        return True
    return passage.received(response.status_code, response.headers.raw)


class _Held(NoContact):
    """What the classes of both libraries have in common: they can be pickled, though they are made only when needed."""

    _request: Any = None
    """What the library's own classes keep the request in, which their clients set anew."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (library_of(self).__name__, *self.args), self.__dict__


def _refusal(held: NoContact, request: Any) -> Any:
    """Make what is raised for a request out of what the composition raises."""
    refusal: Any = _refused(library_of(request))(*held.args)
    refusal.request = request
    return refusal


@cache
def _refused(library: ModuleType) -> type[_Held]:
    return type("NoContact", (_Held, library.TransportError), {"__module__": __name__})


def _again(name: str, *args: Any) -> NoContact:
    return _refused(import_module(name))(*args)
