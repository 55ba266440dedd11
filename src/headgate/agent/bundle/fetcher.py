"""Send GETs one after another, with limits on how long a response may take and how slow it may be.

`Fetcher` is for a synchronous client, `AsyncFetcher` for an asynchronous one. Errors of either library are raised as
`FetchError`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.agent.bundle.range_protocol import Fields
from headgate.agent.fetch.httpx import fetch_through
from headgate.agent.transports.httpx_library import AsyncClient, Client, Response, default_library, library_of
from headgate.errors import FetchError, NoContact
from headgate.fetch.call_thread import CallThread
from headgate.fetch.pace import MIN_RATE, TIMEOUT, USER_AGENT, Pace

__all__ = ["MIN_RATE", "TIMEOUT", "USER_AGENT", "AsyncFetcher", "AsyncReply", "Fetcher", "Reply", "as_fetch_error"]

_PURPOSE = "fetching over HTTP"


class Reply:
    """The head of a response, and its body as it arrives."""

    def __init__(self, response: Response, pace: Pace, thread: CallThread | None = None) -> None:
        self.url = str(response.url)
        """Where it came from, after redirects."""
        self.status = response.status_code
        self.fields: Fields = response.headers
        self._response: Any = response
        self._pace = pace
        self._thread = thread

    @property
    def _is_read(self) -> bool:
        read: bool = self._response.is_stream_consumed
        return read

    def pairs(self) -> list[tuple[str, str]]:
        """Return the fields as received, values as Latin-1."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._response.headers.raw]

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it was sent."""
        assert self._thread is not None
        with as_fetch_error(self.url, library_of(self._response)):
            # Transports without a network may return bodies that were read already.
            arriving = self._response.iter_bytes() if self._is_read else self._response.iter_raw()
            while (chunk := self._pace.timed(arriving, self._thread)) is not None:
                yield chunk


class AsyncReply(Reply):
    """A reply to an asynchronous client: `achunks` instead of `chunks`."""

    async def achunks(self, *, decoded: bool = False) -> AsyncGenerator[bytes]:
        """Yield the body, as sent or without its content coding."""
        with as_fetch_error(self.url, library_of(self._response)):
            is_plain = decoded or self._is_read
            async with aclosing(self._response.aiter_bytes() if is_plain else self._response.aiter_raw()) as arriving:
                while (chunk := await self._pace.atimed(arriving)) is not None:
                    yield chunk


class Fetcher:
    """Sends GETs through a client, or through its own, which sends `user_agent`, if none is given."""

    def __init__(self, client: Client | None = None, *, timeout: float = TIMEOUT, user_agent: str = USER_AGENT) -> None:
        self._library = default_library(_PURPOSE) if client is None else library_of(client)
        self._own = client is None
        self._client: Any = client or self._library.Client(headers={"User-Agent": user_agent.encode()})
        self._timeout = timeout

    @contextmanager
    def get(self, url: str, fields: Mapping[str, str], *, follow: bool = True) -> Iterator[Reply]:
        """Send a GET and open its response; the connection is released when the block ends."""
        pace = Pace(url, self._timeout)
        with closing(CallThread()) as thread:
            with as_fetch_error(url, self._library):
                request = self._client.build_request("GET", url, headers=fields, timeout=self._timeout)
                send = partial(self._client.send, request, stream=True, follow_redirects=follow)
                # A head that comes byte by byte never exceeds the time for one byte.
                response = thread.call(send, 2 * self._timeout)
            try:
                _refuse_downgrade(url, response)
                yield Reply(response, pace, thread)
            finally:
                response.close()
                if self._own:
                    self._client.cookies.clear()  # cookies of one URL are not for the next

    def get_advice(self, request: AdviceRequest) -> AdviceResponse:
        """Fetch traffic advice through the client; raises what is a failure of this machine."""
        transport = _AdviceTransport(self._client, self._library)
        return fetch_through(transport, request, library=self._library, is_closed=lambda: self._client.is_closed)

    def close(self) -> None:
        """Close the client, if it was made here."""
        if self._own:
            self._client.close()


class _AdviceTransport:
    """Sends requests for advice through a client, without its credentials and headers."""

    def __init__(self, client: Any, library: ModuleType) -> None:
        self._client = client
        self._library = library

    def handle_request(self, request: Any) -> Any:
        """Send a request; a status that a hook of the client raises for is a response."""
        try:
            return self._client.send(request, stream=True, auth=None, follow_redirects=False)
        except self._library.HTTPStatusError as error:
            return error.response


class AsyncFetcher:
    """Sends GETs through an asynchronous client, its own if none is given.

    `waits` is how many seconds the client itself may hold a request before it sends it.
    """

    def __init__(self, client: AsyncClient | None = None, *, timeout: float = TIMEOUT, waits: float = 0.0) -> None:
        self._library = default_library(_PURPOSE) if client is None else library_of(client)
        self._own = client is None
        self._client: Any = client or self._library.AsyncClient(headers={"User-Agent": USER_AGENT})
        self._timeout = timeout
        self._waits = waits

    @asynccontextmanager
    async def get(self, url: str, fields: Mapping[str, str], *, follow: bool = True) -> AsyncIterator[AsyncReply]:
        """Send a GET and open its response; the connection is released when the block ends."""
        import anyio

        pace = Pace(url, self._timeout)
        with as_fetch_error(url, self._library):
            request = self._client.build_request("GET", url, headers=fields, timeout=self._timeout)
            # A head that comes byte by byte never exceeds the time for one byte.
            with anyio.fail_after(2 * self._timeout + self._waits):
                response = await self._client.send(request, stream=True, follow_redirects=follow)
        try:
            _refuse_downgrade(url, response)
            yield AsyncReply(response, pace)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the client, if it was made here."""
        if self._own:
            await self._client.aclose()


@contextmanager
def as_fetch_error(url: str, library: ModuleType) -> Iterator[None]:
    """Raise errors of a library as a `FetchError` that names the URL; `NoContact` is raised as it is."""
    try:
        yield
    except NoContact:
        raise
    except (library.RequestError, library.InvalidURL, library.StreamError, TimeoutError) as error:
        # Timeouts have no text.
        raise FetchError(f"{url}: {type(error).__name__}{f': {error}' if str(error) else ''}") from error


def _refuse_downgrade(url: str, response: Any) -> None:
    """Refuse a response without TLS to a request with TLS."""
    hops = [*response.history, response]
    if url[:6].lower() == "https:" and any(str(hop.url)[:5] == "http:" for hop in hops):
        raise FetchError(f"{url}: redirected from https to http; request that URL itself to allow it")
