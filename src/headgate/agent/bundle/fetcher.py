"""Send GETs one after another, with limits on duration and size, and decide when a failed fetch may be repeated.

`Fetcher` is for a synchronous client, `AsyncFetcher` for an asynchronous one. Errors of either library are raised as
`FetchError`. A `Download` keeps a body that arrives in a temporary file, which is mapped when it is complete.
"""

import math
import mmap
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from functools import partial
from types import ModuleType
from typing import Any, BinaryIO, Final, Self

from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.agent.bundle.range_protocol import UNCODED, Fields, check_served, check_uncoded, unexpected_status
from headgate.agent.httpx_library import AsyncClient, Client, Response, default_library, fetch_through, library_of
from headgate.errors import FetchError, NoContact, reason_of
from headgate.fetch.pace import FETCH_TIMEOUT, USER_AGENT, CallThread, Pace
from headgate.http.date import retry_after as parse_retry_after
from headgate.release import ASAP
from headgate.throttle import Policy

_PURPOSE = "fetching over HTTP"

MAX_BYTES = 1 << 30
"""Default maximum of the bytes of a bundle that are kept."""
_POLICY: Final = Policy(num_errors_to_ignore=0)
"""The throttle's backoff without ignored failures: a fetch that failed may have transferred a gigabyte."""


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
    """Sends GETs through a client, or through its own, which sends `user_agent`, if none is given.

    Several threads may use it at once. A call that has timed out goes on in its thread until the server ends it, or
    until the client is closed: then it ends at the next byte.
    """

    def __init__(
        self, client: Client | None = None, *, timeout: float = FETCH_TIMEOUT, user_agent: str = USER_AGENT
    ) -> None:
        self._library = default_library(_PURPOSE) if client is None else library_of(client)
        self._own = client is None
        self._user_agent = user_agent
        self._client: Any = client or self._new_client()
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
        client = self._client  # which may be replaced meanwhile
        transport = _AdviceTransport(client, self._library)
        return fetch_through(transport, request, library=self._library, is_closed=lambda: client.is_closed)

    def close(self) -> None:
        """Close the client, if it was made here."""
        if self._own:
            self._client.close()

    def renew(self) -> None:
        """Close and replace the client, if it was made here: this ends all calls. For use by a single thread."""
        if self._own:
            self._client.close()
            self._client = self._new_client()

    def _new_client(self) -> Any:
        return self._library.Client(headers={"User-Agent": self._user_agent.encode()})


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

    def __init__(
        self, client: AsyncClient | None = None, *, timeout: float = FETCH_TIMEOUT, waits: float = 0.0
    ) -> None:
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
        raise FetchError(f"{url}: {_reason(error, library)}") from error


def _reason(error: Exception, library: ModuleType) -> str:
    """Return why a request failed, in the words of the system if it gave some."""
    if isinstance(error, (TimeoutError, library.ConnectTimeout, library.ReadTimeout, library.WriteTimeout)):
        return "the server did not respond in time"
    return reason_of(error) or type(error).__name__


def _refuse_downgrade(url: str, response: Any) -> None:
    """Refuse a response without TLS to a request with TLS."""
    hops = [*response.history, response]
    if url[:6].lower() == "https:" and any(str(hop.url)[:5] == "http:" for hop in hops):
        raise FetchError(f"{url}: redirected from https to http; request that URL itself to allow it")


class Download:
    """A file that grows; a context manager, after which it is gone unless it was mapped."""

    def __init__(self, url: str, fields: Fields, *, max_bytes: int) -> None:
        self._url = url
        self._max_bytes = max_bytes
        self._received = 0
        stated = fields.get("content-length", "")
        if stated.isascii() and stated.isdigit() and int(stated[:20]) > max_bytes:
            raise self._too_long()
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - this is the context manager

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, chunk: bytes) -> None:
        """Append a chunk; raises `FetchError` where that exceeds the limit."""
        self._received += len(chunk)
        if self._received > self._max_bytes:
            raise self._too_long()
        self._file.write(chunk)

    def mapped(self) -> mmap.mmap | bytes:
        """Return the bytes; their disk space is free again when they are no longer used."""
        self._file.flush()
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self._received else b""

    def _too_long(self) -> FetchError:
        return FetchError(f"{self._url}: longer than the limit of {self._max_bytes} bytes (max_bytes)")


def download_bundle(url: str, *, require_nosniff: bool = True) -> tuple[str, mmap.mmap | bytes]:
    """Fetch the bundle at a URL; return where it is after redirects, and its bytes. Raises `FetchError`."""
    with closing(Fetcher()) as fetcher, fetcher.get(url, UNCODED) as reply:
        check_reply(reply.url, reply.status, reply.fields, require_nosniff=require_nosniff)
        with Download(reply.url, reply.fields, max_bytes=MAX_BYTES) as download:
            for chunk in reply.chunks():
                download.add(chunk)
            return reply.url, download.mapped()


def check_reply(url: str, status: int, fields: Fields, *, require_nosniff: bool) -> None:
    """Refuse a response that is not a whole bundle, served as one; raises `FetchError`."""
    if status != 200:
        raise unexpected_status(url, status, fields)
    check_served(url, fields, require_nosniff=require_nosniff)
    check_uncoded(url, fields)


class FetchBackoff:
    """The state of one URL: how often fetching it failed, with which error, and how long it is held.

    After a failure the URL is held for the throttle's backoff, and for the server's Retry-After if that is longer.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = ASAP
        self._pause = 0.0
        self._why = ""

    def check(self, *, now: float) -> None:
        """Raise `FetchError`, with the last failure, while the URL is held."""
        left = self._left(now)
        if left > 0:
            when = f"it may be fetched again in {left:.1f} s" if left < math.inf else "it is not fetched again"
            raise FetchError(f"{self._why}; {when}")

    def failed(self, why: str, retry_after: str, *, sent: float, now: float, draw: float) -> None:
        """Record the failure of a request `sent` at that time, and its response's Retry-After, empty without one.

        `draw` is from [0, 1), for the jitter. Parallel requests count as one failure.
        """
        if sent >= self._failed_at:
            self._failures += 1
        wanted = parse_retry_after(retry_after, now=now) - now
        self._pause = max(_POLICY.delay(self._failures, draw), wanted, self._left(now))
        self._failed_at = now
        self._why = why

    def succeeded(self) -> None:
        """Record a successful fetch."""
        self._failures = max(0, self._failures - 1)

    def _left(self, now: float) -> float:
        """Return the seconds until it may be fetched."""
        # If the clock is set back, the pause begins anew, so it is never longer than intended.
        self._failed_at = min(self._failed_at, now)
        return self._failed_at + self._pause - now
