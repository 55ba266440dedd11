"""Transports for httpx2 and httpx that answer requests out of a bundle, and send the others on.

`matching` says which requests a bundle may answer. What it answers, it answers without a connection, and says so in
`Headgate-Source: bundle`; everything else goes to the transport behind it, a response that the bundle has and that
breaks a step of the document included.
"""

import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AsyncExitStack, ExitStack
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from headgate.agent.bundle.answering import Answering, Asked, not_stored, response, skipping
from headgate.agent.bundle.async_ranges import AsyncRangeBundle
from headgate.agent.bundle.download import MOST_BYTES
from headgate.agent.bundle.fetch import TIMEOUT, USER_AGENT, AsyncFetcher, Fetcher
from headgate.agent.bundle.matching import answered
from headgate.agent.bundle.parts import UNCODED
from headgate.agent.bundle.ranges import RangeBundle
from headgate.agent.library import library_of
from headgate.bundle.files.byte_source import Source
from headgate.bundle.model import Profile, Response
from headgate.bundle.reading.mi_decoding import has_mi_coding
from headgate.bundle.reading.reader import Bundle
from headgate.bundle.sources.skipped import MessageCallback, ignore_message
from headgate.errors import ConfigurationError, FetchError, ResponseError

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, BaseTransport
else:
    # Clients of either library take whatever has the methods.
    AsyncBaseTransport = BaseTransport = object

__all__ = ["AsyncBundleTransport", "BundleTransport"]


class BundleTransport(BaseTransport):
    """For `httpx2.Client(transport=BundleTransport("site.wbn"))`, and the same with httpx.

    `bundle` is one that is open, a path, or the URL of one, which is fetched whole with the first request that it could
    answer. `inner` is the transport behind it, by default the library's own for HTTP. `base_url` is what the relative
    URLs of a b2 bundle are relative to, by default where it was fetched from.

    A bundle that is fetched must be served as `application/webbundle` with `X-Content-Type-Options: nosniff`, or is
    refused with a `FetchError` (5.2), unless `require_nosniff` is false. A bundle from the network answers for its own
    origin alone, signed or not; one that is here answers for every URL in it. `origins` names others, such as
    `["https://example.com"]`, or `*` for all. A fetch that fails raises, and is repeated after a backoff or the
    server's Retry-After; until then its error is raised again. `max_bytes` bounds what is kept: a bundle that is
    fetched, and a response out of a `RangeBundle` that was signed, which is checked to its end before any of it is
    given. `tell` is given a sentence about each response that the network has to give instead. `clock` gives seconds
    since 1970, and `draw` numbers from [0, 1).
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
        max_bytes: int = MOST_BYTES,
        timeout: float = TIMEOUT,
        tell: MessageCallback = ignore_message,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if isinstance(bundle, AsyncRangeBundle):
            raise ConfigurationError("an AsyncRangeBundle needs an AsyncBundleTransport")
        self._answering = Answering(
            bundle,
            profile=profile,
            base_url=base_url,
            require_nosniff=require_nosniff,
            origins=origins,
            max_bytes=max_bytes,
            tell=tell,
            clock=clock,
            draw=draw,
        )
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
        """Close the transport behind this one, and the bundle where it was opened here."""
        self._answering.close()
        if self._inner is not None:
            self._inner.close()

    def handle_request(self, request: Any) -> Any:
        """Answer a request out of the bundle, or pass it on."""
        asked = self._answering.asked(request)
        if asked is not None:
            answer = self._answer(asked)
            if answer is not None:
                return answer
            if asked.wanted.only_stored:
                return not_stored(asked)
        return self._behind(library_of(request)).handle_request(request)

    def _answer(self, asked: Asked) -> Any:
        bundle = self._answering.bundle or self._fetched(asked.library)
        if isinstance(bundle, Bundle):
            return self._answering.from_memory(asked, bundle)
        assert isinstance(bundle, RangeBundle)
        location = self._answering.locate(asked, bundle.metadata)
        if location is None:
            return None
        with ExitStack() as stack:
            try:
                with self._answering.fetching():
                    stored = stack.enter_context(bundle.stream(location))
                if has_mi_coding(stored.stored_headers):
                    with self._answering.keeping(asked, stored) as download:
                        with self._answering.fetching():
                            for chunk in stored.chunks:
                                download.add(chunk)
                        whole = Response(stored.status, stored.stored_headers, memoryview(download.mapped()))
                    return self._answering.answer(asked, bundle, location, whole)
            except (ResponseError, FetchError) as error:
                self._answering.tell_of(asked, error)
                return None
            answer = answered(asked.wanted, stored.status, stored.headers, stored.length)
            if answer is None:
                return None
            return response(asked, answer, _cut(stored.chunks, answer.start, answer.stop), stack.pop_all().close)

    def _fetched(self, library: ModuleType) -> Any:
        with self._lock:
            if self._answering.bundle is not None:
                return self._answering.bundle
            client = library.Client(transport=self._behind(library), headers={"User-Agent": USER_AGENT})
            with (
                self._answering.fetching(),
                Fetcher(client, timeout=self._timeout).get(self._answering.url, UNCODED) as reply,
                self._answering.download(reply.url, reply.status, reply.fields) as download,
            ):
                for chunk in reply.chunks():
                    download.add(chunk)
                return self._answering.open(reply.url, download)

    def _behind(self, library: ModuleType) -> Any:
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
        max_bytes: int = MOST_BYTES,
        timeout: float = TIMEOUT,
        tell: MessageCallback = ignore_message,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if isinstance(bundle, RangeBundle):
            raise ConfigurationError("a RangeBundle needs a BundleTransport")
        self._answering = Answering(
            bundle,
            profile=profile,
            base_url=base_url,
            require_nosniff=require_nosniff,
            origins=origins,
            max_bytes=max_bytes,
            tell=tell,
            clock=clock,
            draw=draw,
        )
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
        """Close the transport behind this one, and the bundle where it was opened here."""
        self._answering.close()
        if self._inner is not None:
            await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request out of the bundle, or pass it on."""
        asked = self._answering.asked(request)
        if asked is not None:
            answer = await self._answer(asked)
            if answer is not None:
                return answer
            if asked.wanted.only_stored:
                return not_stored(asked)
        return await self._behind(library_of(request)).handle_async_request(request)

    async def _answer(self, asked: Asked) -> Any:
        bundle = self._answering.bundle or await self._fetched(asked.library)
        if isinstance(bundle, Bundle):
            return self._answering.from_memory(asked, bundle)
        assert isinstance(bundle, AsyncRangeBundle)
        location = self._answering.locate(asked, bundle.metadata)
        if location is None:
            return None
        async with AsyncExitStack() as stack:
            try:
                with self._answering.fetching():
                    stored = await stack.enter_async_context(bundle.stream(location))
                if has_mi_coding(stored.stored_headers):
                    with self._answering.keeping(asked, stored) as download:
                        with self._answering.fetching():
                            async for chunk in stored.chunks:
                                download.add(chunk)
                        whole = Response(stored.status, stored.stored_headers, memoryview(download.mapped()))
                    return self._answering.answer(asked, bundle, location, whole)
            except (ResponseError, FetchError) as error:
                self._answering.tell_of(asked, error)
                return None
            answer = answered(asked.wanted, stored.status, stored.headers, stored.length)
            if answer is None:
                return None
            return response(asked, answer, _acut(stored.chunks, answer.start, answer.stop), stack.pop_all().aclose)

    async def _fetched(self, library: ModuleType) -> Any:
        import anyio

        self._lock = self._lock or anyio.Lock()
        async with self._lock:
            if self._answering.bundle is not None:
                return self._answering.bundle
            client = library.AsyncClient(transport=self._behind(library), headers={"User-Agent": USER_AGENT})
            with self._answering.fetching():
                async with AsyncFetcher(client, timeout=self._timeout).get(self._answering.url, UNCODED) as reply:
                    with self._answering.download(reply.url, reply.status, reply.fields) as download:
                        async for chunk in reply.achunks():
                            download.add(chunk)
                        return self._answering.open(reply.url, download)

    def _behind(self, library: ModuleType) -> Any:
        if self._inner is None:
            self._inner = library.AsyncHTTPTransport()
        return self._inner


def _cut(chunks: Iterator[bytes], start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to before `stop`, and take no more than it needs."""
    if start == stop:
        return
    cut = skipping(start, stop)
    left = stop - start
    for chunk in chunks:
        if piece := cut(chunk):
            left -= len(piece)
            yield piece
        if not left:
            return


async def _acut(chunks: AsyncIterator[bytes], start: int, stop: int) -> AsyncIterator[bytes]:
    """Yield the bytes from `start` to before `stop`, and take no more than it needs."""
    if start == stop:
        return
    cut = skipping(start, stop)
    left = stop - start
    async for chunk in chunks:
        if piece := cut(chunk):
            left -= len(piece)
            yield piece
        if not left:
            return
