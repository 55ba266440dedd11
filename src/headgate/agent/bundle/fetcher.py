"""Send GETs one after another, with a limit on duration; errors of httpx2 and httpx are raised as `FetchError`."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.agent.bundle.download import MAX_BYTES, UNCODED, Download
from headgate.agent.httpx_library import Client, Response, default_library, fetch_through, library_of
from headgate.bundle.files.open_file import OpenFile
from headgate.errors import FetchError, RetryLater, reason_of
from headgate.fetch.pace import FETCH_TIMEOUT, USER_AGENT, Pace, call_in_thread

_PURPOSE = "fetching over HTTP"


class Reply:
    """The head of a response, and its body as it arrives."""

    def __init__(self, response: Response, pace: Pace) -> None:
        self.url = str(response.url)
        """Where it came from, after redirects."""
        self.status = response.status_code
        self.fields: Mapping[str, str] = response.headers
        self._response: Any = response
        self._pace = pace

    def pairs(self) -> list[tuple[str, str]]:
        """Return the fields as received, values as Latin-1."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._response.headers.raw]

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it was sent."""
        with as_fetch_error(self.url, library_of(self._response)):
            # Transports without a network may return bodies that were read already.
            is_read = self._response.is_stream_consumed
            arriving = self._response.iter_bytes() if is_read else self._response.iter_raw()
            while (chunk := self._pace.timed(arriving)) is not None:
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
        with as_fetch_error(url, self._library):
            request = self._client.build_request("GET", url, headers=fields, timeout=self._timeout)
            send = partial(self._client.send, request, stream=True, follow_redirects=follow)
            # A head that comes byte by byte never exceeds the time for one byte.
            response = call_in_thread(send, 2 * self._timeout)
        try:
            refuse_downgrade(url, response)
            yield Reply(response, pace)
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


@contextmanager
def as_fetch_error(url: str, library: ModuleType) -> Iterator[None]:
    """Raise errors of a library as a `FetchError` that names the URL; `RetryLater` is raised as it is."""
    try:
        yield
    except RetryLater:
        raise
    except (library.RequestError, library.InvalidURL, library.StreamError, TimeoutError) as error:
        raise FetchError(f"{url}: {_reason(error, library)}") from error


def _reason(error: Exception, library: ModuleType) -> str:
    """Return why a request failed, in the words of the system if it gave some."""
    if isinstance(error, (TimeoutError, library.ConnectTimeout, library.ReadTimeout, library.WriteTimeout)):
        return "the server did not respond in time"
    return reason_of(error) or type(error).__name__


def refuse_downgrade(url: str, response: Any) -> None:
    """Refuse a response without TLS to a request with TLS."""
    hops = [*response.history, response]
    if url[:6].lower() == "https:" and any(str(hop.url)[:5] == "http:" for hop in hops):
        raise FetchError(f"{url}: redirected from https to http; request that URL itself to allow it")


def download_bundle(url: str, *, require_nosniff: bool = True) -> tuple[str, OpenFile]:
    """Fetch the bundle at a URL; return where it is after redirects, and its file. Raises `FetchError`."""
    with closing(Fetcher()) as fetcher, fetcher.get(url, UNCODED) as reply:
        limits: dict[str, Any] = {"max_bytes": MAX_BYTES, "require_nosniff": require_nosniff}
        with Download(reply.url, reply.status, reply.fields, **limits) as download:
            for chunk in reply.chunks():
                download.add(chunk)
            return reply.url, download.take()
