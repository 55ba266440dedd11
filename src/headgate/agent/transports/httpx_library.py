"""httpx2 and classic httpx: two libraries with one interface, distinguished by the objects that they pass.

Nothing here is imported before it is needed, so either library alone is enough. A client takes only responses made of
its own library's classes; so whatever answers a request asks the request which library that is.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    import httpx
    import httpx2

    Client: TypeAlias = httpx2.Client | httpx.Client
    AsyncClient: TypeAlias = httpx2.AsyncClient | httpx.AsyncClient
    Request: TypeAlias = httpx2.Request | httpx.Request
    Response: TypeAlias = httpx2.Response | httpx.Response
else:
    Client = AsyncClient = Request = Response = Any


_NAMES = ("httpx2", "httpx")


def library_of(thing: object) -> ModuleType:
    """Return the library a request, client or transport is made of; raises `ConfigurationError` for anything else."""
    for kind in type(thing).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in _NAMES:
            return sys.modules[name]
    raise ConfigurationError(f"a {type(thing).__qualname__} is neither of httpx2 nor of httpx; give one of theirs")


def default_library(purpose: str) -> ModuleType:
    """Import httpx2, or httpx where only that is installed; raises `MissingExtra` where neither is."""
    try:
        import httpx2
    except ImportError:
        try:
            import httpx
        except ImportError:
            raise MissingExtra("httpx2", purpose) from None
        return httpx
    return httpx2


@cache
def byte_stream(library: ModuleType) -> type["Body"]:
    """Make the class of a response's body for one library; either kind of client takes it."""
    return type("BundleBody", (Body, library.SyncByteStream, library.AsyncByteStream), {})


class Body:
    """The body of a response made here, out of an iterator, or of an asynchronous one for an asynchronous client.

    `close` is called, and awaited by an asynchronous client, when the response is closed.
    """

    def __init__(
        self,
        chunks: Iterator[bytes] | AsyncIterator[bytes],
        close: Callable[[], None] | Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._chunks = chunks
        self._close = close

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._chunks, Iterator)
        yield from self._chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._chunks, Iterator):
            for chunk in self._chunks:
                yield chunk
        else:
            async for chunk in self._chunks:
                yield chunk

    def close(self) -> None:
        """Let go of what the body came from."""
        if self._close is not None:
            self._close()

    async def aclose(self) -> None:
        """Let go of what the body came from."""
        if self._close is not None:
            closing = self._close()
            assert closing is not None
            await closing
