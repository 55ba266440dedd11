"""A bundle on a server, read by HTTP ranges through an asynchronous client: `ranges`, with every wait awaited."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Self

from headgate.agent.bundle.download import MOST_BYTES, Download
from headgate.agent.bundle.fetch import TIMEOUT, AsyncFetcher, AsyncReply
from headgate.agent.bundle.opened import (
    Opening,
    RemoteBundle,
    StreamedResponse,
    WholeSent,
    in_chunks,
    streamed,
    streamed_whole,
)
from headgate.agent.bundle.parts import Ask, Counted
from headgate.agent.library import AsyncClient
from headgate.bundle.model import Location, Profile, Response
from headgate.bundle.reading.lookup import locate, select_location
from headgate.bundle.reading.stream import MAX_METADATA_SIZE

__all__ = ["AsyncRangeBundle"]


class AsyncRangeBundle(RemoteBundle):
    """An open bundle on a server; an asynchronous context manager, made by `await AsyncRangeBundle.open(…)`."""

    def __init__(self, fetcher: AsyncFetcher, how: Opening) -> None:
        super().__init__(how)
        self._fetcher = fetcher

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
        max_bytes: int = MOST_BYTES,
        timeout: float = TIMEOUT,  # noqa: ASYNC109 - for a byte, not for the call
    ) -> Self:
        """Load the metadata of a bundle, as `RangeBundle.open` does."""
        how = Opening(url, profile, from_end, base_url, require_nosniff, max_metadata, max_bytes)
        bundle = cls(AsyncFetcher(client, timeout=timeout), how)
        try:
            await bundle._open()
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
        """Let go of what was opened here; a client that was given stays open."""
        self._forget()
        await self._fetcher.aclose()

    async def response(self, url: str, variant_key: str | None = None) -> Response:
        """Load the response for `url` and `variant_key`, whole; raises as `Bundle.response` does, and `FetchError`."""
        return await self.load(locate(self.metadata, url, variant_key))

    async def select(self, url: str, request_headers: Mapping[str, str]) -> Response:
        """Load the response that fits a request best, whole; raises as `Bundle.select` does, and `FetchError`."""
        return await self.load(select_location(self.metadata, url, request_headers))

    async def load(self, location: Location) -> Response:
        """Load the response at a location of the metadata, whole; raises `FetchError` for one too large for that."""
        part = self._place_whole(location)
        return self._interpreted(location, await self._fetch(part) if isinstance(part, Ask) else part)

    @asynccontextmanager
    async def stream(self, location: Location) -> AsyncIterator[StreamedResponse[AsyncIterator[bytes]]]:
        """Open the response at a location: its head is there, its payload comes in chunks, and is never held whole."""
        part = self._place(location)
        if not isinstance(part, Ask):
            response = self._interpreted(location, part)
            yield streamed_whole(response, _each(in_chunks(response.payload)))
            return
        async with self._fetcher.get(self.url, self._resource.fields(part)) as reply:
            length = self._resource.judge(part, reply.status, reply.fields, url=reply.url) or 0
            reading = self._reading(location)
            async with aclosing(_exactly(reply, length)) as arriving:
                async for chunk in arriving:
                    if reading.feed(chunk):
                        break
                head = reading.finish(length)
                yield streamed(head, _behind(reading.rest(), arriving))

    async def _open(self) -> None:
        program = self._program()
        try:
            ask = next(program)
            while True:
                ask = program.send(await self._fetch(ask))
        except StopIteration as done:
            self.metadata = done.value
        except WholeSent as sent:
            self._read_whole(sent.content)

    async def _fetch(self, ask: Ask) -> bytes:
        async with self._fetcher.get(self.url, self._resource.fields(ask)) as reply:
            length = self._resource.judge(ask, reply.status, reply.fields, url=reply.url)
            if length is not None:
                return b"".join([chunk async for chunk in _exactly(reply, length)])
            with Download(self.url, reply.fields, most=self._how.max_bytes) as download:
                async for chunk in reply.achunks():
                    download.add(chunk)
                raise WholeSent(download.mapped())


async def _exactly(reply: AsyncReply, length: int) -> AsyncGenerator[bytes]:
    counted = Counted(reply.url, length)
    async with aclosing(reply.achunks()) as arriving:
        async for chunk in arriving:
            yield counted.take(chunk)
    counted.end()


async def _behind(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


async def _each(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
