"""Transports for httpx2 and httpx that answer requests out of a bundle, and send the others on.

The bundle is a file, or is fetched whole. A response out of it needs no connection and has the field
`Headgate-Source: bundle`. Every other request goes to the inner transport, also where the bundle cannot be fetched, and
where its response is malformed. `TransportCore` decides; the transports send.
"""

import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from headgate.agent.bundle.download import MAX_BYTES, UNCODED, Download
from headgate.agent.bundle.fetcher import refuse_downgrade
from headgate.agent.httpx_library import Request, library_of
from headgate.bundle.api import open_bundle
from headgate.bundle.files.byte_source import Source
from headgate.bundle.format.metadata import MAX_UNTRUSTED_SECTION
from headgate.bundle.model import Profile, served_headers, unservable
from headgate.bundle.reader import Bundle, select_location
from headgate.bundle.sources.selection import MessageCallback, ignore_message
from headgate.errors import FetchError, NotInBundle, ResponseError, RetryLater, fail_if, reason_of
from headgate.fetch.pace import FETCH_TIMEOUT, USER_AGENT, call_in_thread
from headgate.http.conditional import ConditionalResponse, Validators, apply_preconditions
from headgate.http.date import parse_http_date
from headgate.http.date import retry_after as parse_retry_after
from headgate.http.media_type import parse_weights
from headgate.http.url import parse_url
from headgate.throttle import Policy

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, BaseTransport
else:
    # Clients of either library accept any object with the methods.
    AsyncBaseTransport, BaseTransport = AbstractAsyncContextManager, AbstractContextManager

SOURCE: Final = (b"headgate-source", b"bundle")
"""The field that a response out of a bundle has."""
_POLICY: Final = Policy(num_errors_to_ignore=0)
"""The throttle's backoff without ignored failures: a fetch that failed may have transferred a gigabyte."""
_ORIGIN_ONLY_FIELDS: Final = ("if-match", "if-unmodified-since")
"""Preconditions that "are not applicable to a cache" (RFC 9111, 4.3.2)."""
_FRESHNESS_DIRECTIVES: Final = frozenset({"no-cache", "no-store", "max-age", "min-fresh"})
"""Request directives (RFC 9111, 5.2.1) that require the origin, or an age, which bundles do not record."""
_FIELDS_OF_416: Final = frozenset({b"x-content-type-options", SOURCE[0]})
_WITHOUT_CONTENT: Final = frozenset({204, 205})
_ANY: Final = "*"
_WEB_URL: Final = re.compile(r"https?://", re.IGNORECASE)


class CacheRequest(Struct, frozen=True):
    """A request, as a bundle sees it."""

    method: str
    url: str
    headers: Mapping[str, str]
    """Names in lower case."""
    is_answerable: bool
    """Whether a stored response may answer it."""
    only_stored: bool
    """`only-if-cached`: do not use the network (RFC 9111, 5.2.1.7)."""


def parse_request(method: str, url: str, headers: Mapping[str, str]) -> CacheRequest:
    """Return a request; header names come in any case.

    A stored response answers only a GET or HEAD without body, without preconditions on the origin's state, and without
    a `Cache-Control` or `Pragma` that refuses stored responses.
    """
    headers = {name.lower(): value for name, value in headers.items()}
    control = headers.get("cache-control", headers.get("pragma", ""))
    directives = {directive.partition("=")[0].strip().lower() for directive in control.split(",")}
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    is_answerable = (
        method in ("GET", "HEAD")
        and not has_body
        and not any(name in headers for name in _ORIGIN_ONLY_FIELDS)
        and not directives & _FRESHNESS_DIRECTIVES
    )
    return CacheRequest(method, url, headers, is_answerable, "only-if-cached" in directives)


def make_response(
    request: CacheRequest, status: int, headers: Mapping[str, str], length: int
) -> ConditionalResponse | None:
    """Return the response to a request from a stored one with a payload of `length` bytes.

    `headers` include nosniff. None where the request does not accept the stored content coding.
    """
    if not _is_decodable(headers.get("content-encoding"), request.headers.get("accept-encoding")):
        return None
    fields = [*_encoded(served_headers(headers)), SOURCE]
    if status in _WITHOUT_CONTENT:
        return ConditionalResponse(status, fields, 0, 0)
    validators = Validators(
        headers.get("etag", "").encode("latin-1"), parse_http_date(headers.get("last-modified", "").encode("latin-1"))
    )
    found = apply_preconditions(
        request.method.encode(), _encoded(request.headers), (status, fields), validators, length
    )
    if found.status == 416:
        fields = [field for field in fields if field[0] in _FIELDS_OF_416] + found.fields + [(b"content-length", b"0")]
        return found._replace(fields=fields)
    return found._replace(stop=found.start) if request.method == "HEAD" else found


def _encoded(headers: Mapping[str, str]) -> Iterator[tuple[bytes, bytes]]:
    return ((name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items())


def _is_decodable(content_encoding: str | None, accept_encoding: str | None) -> bool:
    """Return whether a client that sent `accept_encoding` accepts a content coding (RFC 9110, 12.5.3)."""
    if content_encoding is None or accept_encoding is None:
        return True
    weights = parse_weights(accept_encoding.encode("latin-1", "replace"))
    rest = weights.get(b"*", 0.0)
    codings = [coding.strip().lower().encode("latin-1", "replace") for coding in content_encoding.split(",")]
    return all(weights.get(coding, rest) > 0 for coding in codings if coding not in (b"", b"identity"))


class TransportCore:
    """The bundle, open or to be fetched, and the responses out of it; sends nothing."""

    new_lock: Callable[[], Any]
    """Makes a lock for the kind of client."""

    def __init__(
        self,
        source: Bundle | Source,
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
        """For `httpx2.Client(transport=BundleTransport("site.wbn"))`, and the same with httpx.

        `source` is an open bundle, a path, a seekable binary file or the bytes of one, or an http or https URL. The
        bundle at a URL is fetched through `inner` with the first request that it may answer, within `timeout` seconds
        and up to `max_bytes`; while that fails, requests go to the network, `tell` is called with the reason, and the
        next fetch waits for the throttle's backoff and the server's Retry-After. `origins` are those that the bundle
        may answer for, `*` for all: by default that of its URL, and all for a bundle that was not fetched.
        """
        is_web = isinstance(source, str) and _WEB_URL.match(source) is not None
        self.url = str(source) if is_web else ""
        """Where the bundle is to be fetched from; empty for one that is here."""
        self.bundle: Bundle | None = source if isinstance(source, Bundle) else None
        self.timeout = timeout
        self.inner = inner
        self._open_options: dict[str, Any] = {"profile": profile, "base_url": base_url}
        self._limits: dict[str, Any] = {"max_bytes": max_bytes, "require_nosniff": require_nosniff}
        self._tell = tell
        self._clock = clock
        self._draw = draw
        self._own_origin = _origin(self.url) if origins is None and is_web else ""
        named = [self._own_origin or _ANY] if origins is None else [origins] if isinstance(origins, str) else origins
        self._origins = frozenset(map(_named_origin, named))
        self._failures = 0
        self._failed_at = self._pause = 0.0
        self.fetching = self.new_lock()
        """Held while the bundle is fetched, by the requests that it may answer."""
        self.creating = self.new_lock()
        self.fetch_options: dict[str, Any] = {"headers": UNCODED, "follow_redirects": True, "timeout": timeout}
        self._is_own = not isinstance(source, Bundle)
        if not (isinstance(source, Bundle) or is_web):
            self.bundle = open_bundle(source, **self._open_options)

    def close_bundle(self) -> None:
        """Close the bundle, if it was opened here."""
        if self._is_own and self.bundle is not None:
            self.bundle.close()

    def request(self, request: Request) -> CacheRequest:
        """Return a request, and whether the bundle may answer it."""
        found = parse_request(request.method, str(request.url), request.headers)
        if not self._origins.isdisjoint((_ANY, _origin(found.url))):
            return found
        return replace(found, is_answerable=False)

    def must_fetch(self, request: CacheRequest) -> bool:
        """Return whether the bundle must be fetched now to answer a request."""
        if self.bundle is not None or not request.is_answerable or request.only_stored:
            return False
        now = self._clock()
        self._failed_at = min(self._failed_at, now)  # a clock that is set back does not make the pause longer
        return now >= self._failed_at + self._pause

    def begin(self, response: Any) -> Download:
        """Begin to keep the bundle in a response; raises `FetchError`."""
        url = str(response.url)
        refuse_downgrade(self.url, response)
        if self._own_origin and _origin(url) != self._own_origin:
            raise FetchError(
                f"{self.url}: redirected to {url}, which is another origin; "
                "name the origins that the bundle may answer for (origins=)"
            )
        return Download(url, response.status_code, response.headers, **self._limits)

    def finish(self, download: Download, response: Any) -> None:
        """Open the bundle that was fetched; raises `BundleError`."""
        base_url = self._open_options["base_url"] or str(response.url)
        self.bundle = open_bundle(
            download.take(), **{**self._open_options, "base_url": base_url, "max_section": MAX_UNTRUSTED_SECTION}
        )

    @contextmanager
    def failures_told(self) -> Iterator[None]:
        """Catch the failure of a fetch: say why, and hold the next one back."""
        try:
            yield
        except RetryLater:
            return  # an inner transport has held the request back, and will say so of the next one too
        except Exception as error:
            self._failures += 1
            now = self._clock()
            stated = error.retry_after if isinstance(error, FetchError) else ""
            pause = _POLICY.delay(self._failures, self._draw())
            self._failed_at, self._pause = now, max(pause, parse_retry_after(stated, now=now) - now)
            why = f"not fetched within {self.timeout:g} s" if isinstance(error, TimeoutError) else reason_of(error)
            self._tell(why if self.url in why else f"{self.url}: {why or type(error).__name__}")

    def respond(self, request: CacheRequest, library: ModuleType) -> Any:
        """Return the response to a request; None if the network must answer it.

        Raises the library's ReadError where the file has been written to since it was opened.
        """
        try:
            response = self._stored_response(request, library) if request.is_answerable else None
        except ResponseError as error:
            self._tell(f"{request.url}: the response in the bundle cannot be used: {error}")
            response = None
        except OSError as error:
            raise library.ReadError(f"{request.url}: cannot read the bundle: {error}") from error
        if response is None and request.only_stored:
            return library.Response(504, headers={"content-length": "0"}, stream=library.ByteStream(b""))
        return response

    def _stored_response(self, request: CacheRequest, library: ModuleType) -> Any:
        if self.bundle is None:
            return None
        try:
            stored = self.bundle.decode(select_location(self.bundle.metadata, request.url, request.headers))
        except NotInBundle:
            return None
        if fault := unservable(stored.status):
            self._tell(f"{request.url}: the response in the bundle cannot be used: {fault}")
            return None
        found = make_response(request, stored.status, stored.headers, stored.length)
        if found is None:
            return None
        content = b"".join(stored.pieces(found.start, found.stop))
        return library.Response(found.status, headers=found.fields, stream=library.ByteStream(content))


def _origin(url: str) -> str:
    """Return a URL's scheme, host and port; a text that is not a URL is its own origin, which no request has."""
    return "/".join((parse_url(url) or url).split("/", 3)[:3])


def _named_origin(text: str) -> str:
    fail_if(
        text != _ANY and parse_url(text) is None,
        f"invalid origin {text!r}; expected a URL such as https://example.com, or *",
    )
    return _origin(text)


class BundleTransport(TransportCore, BaseTransport):
    """Answers the requests of a `Client` of httpx2 or httpx out of a bundle; see `TransportCore` for the arguments."""

    new_lock = staticmethod(threading.Lock)

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the inner transport, and the bundle if it was opened here."""
        self.close_bundle()
        if self.inner is not None:
            self.inner.close()

    def handle_request(self, request: Any) -> Any:
        """Answer a request out of the bundle, or send it on."""
        found, library = self.request(request), library_of(request)
        if self.must_fetch(found):
            with self.fetching:
                if self.must_fetch(found):
                    self._fetch(library)
        response = self.respond(found, library)
        return self._inner_transport(library).handle_request(request) if response is None else response

    def _fetch(self, library: ModuleType) -> None:
        client = library.Client(transport=self._inner_transport(library), headers={"User-Agent": USER_AGENT})
        given_up = threading.Event()

        def fetch() -> None:
            with client.stream("GET", self.url, **self.fetch_options) as response, self.begin(response) as download:
                for chunk in response.iter_bytes():
                    download.add(chunk)
                    if given_up.is_set():
                        return
                self.finish(download, response)

        # In a thread: a client's own timeout is for one read, however many there are.
        with self.failures_told():
            try:
                call_in_thread(fetch, self.timeout)
            finally:
                given_up.set()

    def _inner_transport(self, library: ModuleType) -> Any:
        with self.creating:
            self.inner = self.inner or library.HTTPTransport()
            return self.inner


class AsyncBundleTransport(TransportCore, AsyncBaseTransport):
    """`BundleTransport` for an `AsyncClient`."""

    @staticmethod
    def new_lock() -> Any:
        """Return a lock that tasks wait for; anyio comes with either library."""
        import anyio

        return anyio.Lock()

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the inner transport, and the bundle if it was opened here."""
        self.close_bundle()
        if self.inner is not None:
            await self.inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request out of the bundle, or send it on."""
        found, library = self.request(request), library_of(request)
        if self.must_fetch(found):
            async with self.fetching:
                if self.must_fetch(found):
                    await self._fetch(library)
        response = self.respond(found, library)
        return await self._inner_transport(library).handle_async_request(request) if response is None else response

    async def _fetch(self, library: ModuleType) -> None:
        import anyio

        client = library.AsyncClient(transport=self._inner_transport(library), headers={"User-Agent": USER_AGENT})
        with self.failures_told(), anyio.fail_after(self.timeout):
            async with client.stream("GET", self.url, **self.fetch_options) as response:
                with self.begin(response) as download:
                    async for chunk in response.aiter_bytes():
                        download.add(chunk)
                    self.finish(download, response)

    def _inner_transport(self, library: ModuleType) -> Any:
        self.inner = self.inner or library.AsyncHTTPTransport()
        return self.inner
