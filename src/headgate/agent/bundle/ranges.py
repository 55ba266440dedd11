"""A bundle on a server, read by HTTP ranges: the metadata in a request or two, then one request a response.

A server that sends no ranges is taken at its word: the whole bundle is kept in a nameless file, and read there. What
refuses a bundle raises `BundleError`, with offsets in the resource at the URL; what a server does wrong, `FetchError`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from types import TracebackType
from typing import Self

from headgate.agent.bundle.download import MOST_BYTES, Download
from headgate.agent.bundle.fetch import TIMEOUT, Fetcher, Reply
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
from headgate.agent.library import Client
from headgate.bundle.model import Location, Profile, Response
from headgate.bundle.reading.lookup import locate, select_location
from headgate.bundle.reading.stream import MAX_METADATA_SIZE

__all__ = ["RangeBundle"]


class RangeBundle(RemoteBundle):
    """An open bundle on a server; a context manager, made by `RangeBundle.open`."""

    def __init__(self, fetcher: Fetcher, how: Opening) -> None:
        super().__init__(how)
        self._fetcher = fetcher

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
        max_bytes: int = MOST_BYTES,
        timeout: float = TIMEOUT,
    ) -> Self:
        """Load the metadata of the bundle at `url`, or of the one that ends what is there (`from_end`).

        `client` is one of httpx2 or httpx; without one it has its own. `max_metadata` and `max_bytes` bound what is
        kept of the metadata, and of a bundle or a response that is taken whole. A bundle served without `nosniff` or
        as another type is refused (5.2), unless `require_nosniff` is false. `timeout` is in seconds: that long no
        byte comes. Raises `FetchError` and `BundleError`.
        """
        how = Opening(url, profile, from_end, base_url, require_nosniff, max_metadata, max_bytes)
        bundle = cls(Fetcher(client, timeout=timeout), how)
        try:
            bundle._open()
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
        """Let go of what was opened here; a client that was given stays open."""
        self._forget()
        self._fetcher.close()

    def response(self, url: str, variant_key: str | None = None) -> Response:
        """Load the response for `url` and `variant_key`, whole; raises as `Bundle.response` does, and `FetchError`."""
        return self.load(locate(self.metadata, url, variant_key))

    def select(self, url: str, request_headers: Mapping[str, str]) -> Response:
        """Load the response that fits a request best, whole; raises as `Bundle.select` does, and `FetchError`."""
        return self.load(select_location(self.metadata, url, request_headers))

    def load(self, location: Location) -> Response:
        """Load the response at a location of the metadata, whole; raises `FetchError` for one too large for that."""
        part = self._place_whole(location)
        return self._interpreted(location, self._fetch(part) if isinstance(part, Ask) else part)

    @contextmanager
    def stream(self, location: Location) -> Iterator[StreamedResponse[Iterator[bytes]]]:
        """Open the response at a location: its head is there, its payload comes in chunks, and is never held whole."""
        part = self._place(location)
        if not isinstance(part, Ask):
            response = self._interpreted(location, part)
            yield streamed_whole(response, in_chunks(response.payload))
            return
        with self._fetcher.get(self.url, self._resource.fields(part)) as reply:
            length = self._resource.judge(part, reply.status, reply.fields, url=reply.url) or 0
            arriving = _exactly(reply, length)
            reading = self._reading(location)
            for chunk in arriving:
                if reading.feed(chunk):
                    break
            head = reading.finish(length)
            yield streamed(head, chain((reading.rest(),), arriving))

    def _open(self) -> None:
        program = self._program()
        try:
            ask = next(program)
            while True:
                ask = program.send(self._fetch(ask))
        except StopIteration as done:
            self.metadata = done.value
        except WholeSent as sent:
            self._read_whole(sent.content)

    def _fetch(self, ask: Ask) -> bytes:
        with self._fetcher.get(self.url, self._resource.fields(ask)) as reply:
            length = self._resource.judge(ask, reply.status, reply.fields, url=reply.url)
            if length is not None:
                return b"".join(_exactly(reply, length))
            with Download(self.url, reply.fields, most=self._how.max_bytes) as download:
                for chunk in reply.chunks():
                    download.add(chunk)
                raise WholeSent(download.mapped())


def _exactly(reply: Reply, length: int) -> Iterator[bytes]:
    counted = Counted(reply.url, length)
    for chunk in reply.chunks():
        yield counted.take(chunk)
    counted.end()
