"""Transports for httpx2 and httpx that answer requests out of a bundle, and send the others on.

`transport_core` decides which requests a bundle may answer. A response out of it needs no connection and has the field
`Headgate-Source: bundle`. Every other request goes to the inner transport, also where the bundle's response is
malformed.
"""

import random
import threading
import time
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, ExitStack
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from headgate.agent.bundle.fetcher import MAX_BYTES, AsyncFetcher, Fetcher
from headgate.agent.bundle.ranges import AsyncRangeBundle, RangeBundle
from headgate.agent.bundle.session import AsyncSession, Session
from headgate.agent.bundle.transport_core import (
    BundleRequest,
    StreamedAnswer,
    TransportCore,
    TransportOptions,
    library_response,
    not_stored,
)
from headgate.agent.httpx_library import library_of
from headgate.bundle.files.byte_source import Source
from headgate.bundle.model import Profile
from headgate.bundle.reader import Bundle
from headgate.bundle.sources.selection import MessageCallback, ignore_message
from headgate.errors import ConfigurationError
from headgate.fetch.pace import FETCH_TIMEOUT, USER_AGENT

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, BaseTransport
else:
    # Clients of either library accept any object with the methods.
    AsyncBaseTransport = BaseTransport = object


class BundleTransport(BaseTransport):
    """For `httpx2.Client(transport=BundleTransport("site.wbn"))`, and the same with httpx.

    `bundle` is an open bundle, a path, or a URL; from a URL the whole bundle is fetched with the first request that it
    could answer. `inner` is the transport for other requests, by default the library's own for HTTP. `base_url`
    resolves the relative URLs of a b2 bundle; the default is the URL it was fetched from.

    A bundle that is fetched must be served as `application/webbundle` with `X-Content-Type-Options: nosniff`, or is
    refused with a `FetchError` (5.2), unless `require_nosniff` is false. A bundle from the network, signed or not,
    answers for its own origin only; a local one answers for every URL in it. `origins` names others, such as
    `["https://example.com"]`, or `*` for all. A fetch that fails raises, and is repeated after a backoff or the
    server's Retry-After; until then its error is raised again. `max_bytes` limits what is kept: a bundle that is
    fetched, and a signed response of a `RangeBundle`, which is verified before any of it is used. `tell` is called
    with a message for each malformed response; such a response comes from the network. `clock` returns seconds since
    1970, and `draw` numbers from [0, 1).
    """

    def __init__(
        self,
        bundle: Bundle | RangeBundle | Source,
        inner: Any = None,
        *,
        profile: Profile = "strict",
        base_url: str | None = None,
        require_nosniff: bool = True,
        origins: Collection[str] | None = None,
        max_bytes: int = MAX_BYTES,
        timeout: float = FETCH_TIMEOUT,
        tell: MessageCallback = ignore_message,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if isinstance(bundle, AsyncRangeBundle):
            raise ConfigurationError("an AsyncRangeBundle needs an AsyncBundleTransport")
        options = TransportOptions(profile, base_url, require_nosniff, origins, max_bytes, tell, clock, draw)
        self._core = TransportCore(bundle, options)
        self._inner = inner
        self._timeout = timeout
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the inner transport, and the bundle if it was opened here."""
        self._core.close()
        if self._inner is not None:
            self._inner.close()

    def handle_request(self, request: Any) -> Any:
        """Answer a request out of the bundle, or send it on."""
        found = self._core.request(request)
        if found is not None:
            response = self._respond(found)
            if response is not None:
                return response
            if found.cache_request.only_stored:
                return not_stored(found)
        return self._inner_transport(library_of(request)).handle_request(request)

    def _respond(self, request: BundleRequest) -> Any:
        bundle = self._fetched(request.library) if self._core.bundle is None else self._core.bundle
        if isinstance(bundle, Bundle):
            return self._core.answer(request, bundle)
        assert isinstance(bundle, RangeBundle)
        with ExitStack() as stack:
            session = stack.enter_context(Session(bundle.fetcher))
            answer = session.run(self._core.answer_remote(request, bundle))
            if not isinstance(answer, StreamedAnswer):
                return answer
            response = answer.response
            chunks = session.chunks(answer.begun.body, response.start, response.stop)
            return library_response(request, response, chunks, stack.pop_all().close)

    def _fetched(self, library: ModuleType) -> Any:
        with self._lock:
            if self._core.bundle is not None:
                return self._core.bundle
            client = library.Client(transport=self._inner_transport(library), headers={"User-Agent": USER_AGENT})
            with Session(Fetcher(client, timeout=self._timeout)) as session:
                return session.run(self._core.fetch())

    def _inner_transport(self, library: ModuleType) -> Any:
        with self._lock:
            if self._inner is None:
                self._inner = library.HTTPTransport()
            return self._inner


class AsyncBundleTransport(AsyncBaseTransport):
    """`BundleTransport` for `httpx2.AsyncClient`, and the same with httpx."""

    def __init__(
        self,
        bundle: Bundle | AsyncRangeBundle | Source,
        inner: Any = None,
        *,
        profile: Profile = "strict",
        base_url: str | None = None,
        require_nosniff: bool = True,
        origins: Collection[str] | None = None,
        max_bytes: int = MAX_BYTES,
        timeout: float = FETCH_TIMEOUT,
        tell: MessageCallback = ignore_message,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if isinstance(bundle, RangeBundle):
            raise ConfigurationError("a RangeBundle needs a BundleTransport")
        options = TransportOptions(profile, base_url, require_nosniff, origins, max_bytes, tell, clock, draw)
        self._core = TransportCore(bundle, options)
        self._inner = inner
        self._timeout = timeout
        self._lock: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the inner transport, and the bundle if it was opened here."""
        self._core.close()
        if self._inner is not None:
            await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request out of the bundle, or send it on."""
        found = self._core.request(request)
        if found is not None:
            response = await self._respond(found)
            if response is not None:
                return response
            if found.cache_request.only_stored:
                return not_stored(found)
        return await self._inner_transport(library_of(request)).handle_async_request(request)

    async def _respond(self, request: BundleRequest) -> Any:
        bundle = await self._fetched(request.library) if self._core.bundle is None else self._core.bundle
        if isinstance(bundle, Bundle):
            return self._core.answer(request, bundle)
        assert isinstance(bundle, AsyncRangeBundle)
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(AsyncSession(bundle.fetcher))
            answer = await session.run(self._core.answer_remote(request, bundle))
            if not isinstance(answer, StreamedAnswer):
                return answer
            response = answer.response
            chunks = session.chunks(answer.begun.body, response.start, response.stop)
            return library_response(request, response, chunks, stack.pop_all().aclose)

    async def _fetched(self, library: ModuleType) -> Any:
        import anyio

        self._lock = self._lock or anyio.Lock()
        async with self._lock:
            if self._core.bundle is not None:
                return self._core.bundle
            inner = self._inner_transport(library)
            client = library.AsyncClient(transport=inner, headers={"User-Agent": USER_AGENT})
            async with AsyncSession(AsyncFetcher(client, timeout=self._timeout)) as session:
                return await session.run(self._core.fetch())

    def _inner_transport(self, library: ModuleType) -> Any:
        if self._inner is None:
            self._inner = library.AsyncHTTPTransport()
        return self._inner
