"""A bundle on a server, read by HTTP ranges: the metadata in a request or two, then one request for each response.

Where the server does not support ranges, the whole bundle is kept in a temporary file and read there. Errors of the
bundle are `BundleError`, with offsets in the resource at the URL; errors of the server are `FetchError`.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

from msgspec import Struct

from headgate.agent.bundle.fetcher import MAX_BYTES, AsyncFetcher, Fetcher
from headgate.agent.bundle.range_core import OpenOptions, RangeCore
from headgate.agent.bundle.session import AsyncSession, Session
from headgate.agent.httpx_library import AsyncClient, Client
from headgate.bundle.format.integrity_block import IntegrityBlock
from headgate.bundle.model import NOSNIFF, Headers, Location, Metadata, Profile, Response, ResponseHead
from headgate.bundle.reader import locate, select_location
from headgate.bundle.stream import MAX_METADATA_SIZE
from headgate.fetch.pace import FETCH_TIMEOUT

_Chunks = TypeVar("_Chunks")


class StreamedResponse(Struct, Generic[_Chunks], frozen=True):
    """A response whose payload is still to come."""

    status: int
    stored_headers: dict[str, str]
    """The headers in the bundle: names in lower case, values as Latin-1."""
    length: int
    """Bytes of the payload."""
    chunks: _Chunks
    """The payload; can be iterated once, while the response is open."""

    @property
    def headers(self) -> Headers:
        """The headers with `x-content-type-options: nosniff`, so that no media type is guessed (3.4 step 9)."""
        return Headers({**self.stored_headers, NOSNIFF[0]: NOSNIFF[1]})


class RemoteBundle:
    """What `RangeBundle` and `AsyncRangeBundle` have in common."""

    def __init__(self, core: RangeCore) -> None:
        self.core = core
        """The work of reading it, for a session with a client."""

    @property
    def metadata(self) -> Metadata:
        """Version, URLs, sections, and where each response is."""
        return self.core.metadata

    @property
    def integrity_block(self) -> IntegrityBlock | None:
        """The integrity block before the bundle, unverified."""
        return self.core.integrity_block

    @property
    def start(self) -> int:
        """Bytes before the bundle: an integrity block, or what it was appended to."""
        return self.core.start

    @property
    def size(self) -> int:
        """Bytes from the bundle's first to the last of the resource."""
        return self.core.size

    @property
    def url(self) -> str:
        """Where the bundle is, after redirects."""
        return self.core.url


class RangeBundle(RemoteBundle):
    """An open bundle on a server; a context manager, made by `RangeBundle.open`."""

    def __init__(self, fetcher: Fetcher, core: RangeCore) -> None:
        super().__init__(core)
        self.fetcher = fetcher

    @classmethod
    def open(
        cls,
        url: str,
        *,
        client: Client | None = None,
        profile: Profile = "strict",
        from_end: bool = False,
        base_url: str | None = None,
        require_nosniff: bool = True,
        max_metadata: int = MAX_METADATA_SIZE,
        max_bytes: int = MAX_BYTES,
        timeout: float = FETCH_TIMEOUT,
    ) -> Self:
        """Load the metadata of the bundle at `url`, or of the one at the end of that resource (`from_end`).

        `client` is one of httpx2 or httpx; without one it has its own. `max_metadata` limits the bytes of the metadata,
        `max_bytes` those of a response, and of a bundle that is sent whole. A bundle served without `nosniff` or as
        another type is refused (5.2), unless `require_nosniff` is false. `timeout` is the number of seconds without a
        byte after which the server is given up. Raises `FetchError` and `BundleError`.
        """
        core = RangeCore(OpenOptions(url, profile, from_end, base_url, require_nosniff, max_metadata, max_bytes))
        bundle = cls(Fetcher(client, timeout=timeout), core)
        try:
            with Session(bundle.fetcher) as session:
                session.run(core.open())
        except BaseException:
            bundle.close()
            raise
        return bundle

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened here; a client that was given stays open."""
        self.core.close()
        self.fetcher.close()

    def response(self, url: str, variant_key: str | None = None) -> Response:
        """Load the whole response for `url` and `variant_key`; raises as `Bundle.response` does, and `FetchError`."""
        return self.load(locate(self.metadata, url, variant_key))

    def select(self, url: str, request_headers: Mapping[str, str]) -> Response:
        """Load the whole response that fits a request best; raises as `Bundle.select` does, and `FetchError`."""
        return self.load(select_location(self.metadata, url, request_headers))

    def load(self, location: Location) -> Response:
        """Load the whole response at a location of the metadata; raises `FetchError` for one above `max_bytes`."""
        with Session(self.fetcher) as session:
            return session.run(self.core.load(location))

    @contextmanager
    def stream(self, location: Location) -> Iterator[StreamedResponse[Iterator[bytes]]]:
        """Open the response at a location: its headers have arrived, its payload follows in chunks."""
        with Session(self.fetcher) as session:
            begun = session.run(self.core.begin(location))
            yield _streamed(begun.head, session.chunks(begun.body))


class AsyncRangeBundle(RemoteBundle):
    """An open bundle on a server; an asynchronous context manager, made by `await AsyncRangeBundle.open(…)`."""

    def __init__(self, fetcher: AsyncFetcher, core: RangeCore) -> None:
        super().__init__(core)
        self.fetcher = fetcher

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        client: AsyncClient | None = None,
        profile: Profile = "strict",
        from_end: bool = False,
        base_url: str | None = None,
        require_nosniff: bool = True,
        max_metadata: int = MAX_METADATA_SIZE,
        max_bytes: int = MAX_BYTES,
        timeout: float = FETCH_TIMEOUT,  # noqa: ASYNC109 - for a byte, not for the call
    ) -> Self:
        """Load the metadata of a bundle, as `RangeBundle.open` does."""
        core = RangeCore(OpenOptions(url, profile, from_end, base_url, require_nosniff, max_metadata, max_bytes))
        bundle = cls(AsyncFetcher(client, timeout=timeout), core)
        try:
            async with AsyncSession(bundle.fetcher) as session:
                await session.run(core.open())
        except BaseException:
            await bundle.aclose()
            raise
        return bundle

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what was opened here; a client that was given stays open."""
        self.core.close()
        await self.fetcher.aclose()

    async def response(self, url: str, variant_key: str | None = None) -> Response:
        """Load the whole response for `url` and `variant_key`; raises as `Bundle.response` does, and `FetchError`."""
        return await self.load(locate(self.metadata, url, variant_key))

    async def select(self, url: str, request_headers: Mapping[str, str]) -> Response:
        """Load the whole response that fits a request best; raises as `Bundle.select` does, and `FetchError`."""
        return await self.load(select_location(self.metadata, url, request_headers))

    async def load(self, location: Location) -> Response:
        """Load the whole response at a location of the metadata; raises `FetchError` for one above `max_bytes`."""
        async with AsyncSession(self.fetcher) as session:
            return await session.run(self.core.load(location))

    @asynccontextmanager
    async def stream(self, location: Location) -> AsyncIterator[StreamedResponse[AsyncIterator[bytes]]]:
        """Open the response at a location: its headers have arrived, its payload follows in chunks."""
        async with AsyncSession(self.fetcher) as session:
            begun = await session.run(self.core.begin(location))
            yield _streamed(begun.head, session.chunks(begun.body))


def _streamed(head: ResponseHead, chunks: _Chunks) -> StreamedResponse[_Chunks]:
    return StreamedResponse(head.status, head.stored_headers, head.payload.length, chunks)
