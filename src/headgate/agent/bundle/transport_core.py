"""What the two transports share: where their bundle is, which requests it answers, and with what response.

A bundle answers as a cache does (RFC 9111, section 4): it has whole responses to plain GETs. Requests that need the
origin are left to the network.
"""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from headgate.agent.bundle.fetcher import Download, FetchBackoff, Reply, check_reply
from headgate.agent.bundle.range_core import CHUNK_SIZE, BegunResponse
from headgate.agent.bundle.range_protocol import UNCODED
from headgate.agent.bundle.ranges import RemoteBundle
from headgate.agent.bundle.session import NEXT_CHUNK, Send, Work
from headgate.agent.httpx_library import Request, byte_stream, library_of
from headgate.bundle.api import open_bundle
from headgate.bundle.files.byte_source import Source
from headgate.bundle.format.merkle_integrity import DecodedResponse, OpenedBundle, decode_response, has_mi_coding
from headgate.bundle.model import NOSNIFF, Headers, Location, Metadata, Profile, Response
from headgate.bundle.reader import Bundle, select_location
from headgate.bundle.sources.selection import MessageCallback
from headgate.errors import ConfigurationError, FetchError, NoContact, NotInBundle, ResponseError
from headgate.http.conditional import ConditionalResponse, Validators, apply_preconditions
from headgate.http.date import parse_http_date
from headgate.http.media_type import parse_weights
from headgate.http.url import parse_url

SOURCE: Final = (b"headgate-source", b"bundle")
"""The field that a response out of a bundle has, at either end of a connection."""

_METHODS: Final = frozenset({"GET", "HEAD"})
_ORIGIN_ONLY_FIELDS: Final = ("if-match", "if-unmodified-since")
"""Preconditions that "are not applicable to a cache" (RFC 9111, 4.3.2)."""
_FRESHNESS_DIRECTIVES: Final = frozenset({"no-cache", "no-store", "max-age", "min-fresh"})
"""Request directives (RFC 9111, 5.2.1) that require the origin, or an age, which bundles do not record."""
_CONNECTION_FIELDS: Final = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    b"content-length", SOURCE[0],
})  # fmt: skip
_FIELDS_OF_416: Final = frozenset({b"x-content-type-options", SOURCE[0]})
_WITHOUT_CONTENT: Final = frozenset({204, 205, 304})

_WEB_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_ANY: Final = "*"


class CacheRequest(Struct, frozen=True):
    """A request that a bundle may answer."""

    method: str
    headers: Mapping[str, str]
    """Names in lower case."""
    only_stored: bool
    """`only-if-cached`: do not use the network (RFC 9111, 5.2.1.7)."""


def parse_request(method: str, headers: Mapping[str, str]) -> CacheRequest | None:
    """Return the request if a bundle may answer it, else None; header names are in lower case.

    Not for a bundle are methods other than GET and HEAD, bodies, preconditions on the origin's state, and a
    `Cache-Control` or `Pragma` that refuses stored responses.
    """
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if method not in _METHODS or has_body or any(name in headers for name in _ORIGIN_ONLY_FIELDS):
        return None
    control = headers.get("cache-control")
    directives = _directives(headers.get("pragma", "") if control is None else control)
    if directives & _FRESHNESS_DIRECTIVES:
        return None
    return CacheRequest(method, headers, "only-if-cached" in directives)


def make_response(
    request: CacheRequest, status: int, headers: Mapping[str, str], length: int
) -> ConditionalResponse | None:
    """Return the response to a request from a stored one with a payload of `length` bytes.

    `headers` include nosniff. None where the request does not accept the stored content coding.
    """
    if not _is_decodable(headers.get("content-encoding"), request.headers.get("accept-encoding")):
        return None
    fields = [(name, value) for name, value in _encoded(headers) if name not in _CONNECTION_FIELDS]
    fields.append(SOURCE)
    if status < 200 or status in _WITHOUT_CONTENT:
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


def _directives(value: str) -> frozenset[str]:
    """Return the names of the directives in a Cache-Control, in lower case."""
    return frozenset(directive.partition("=")[0].strip().lower() for directive in value.split(","))


def _is_decodable(content_encoding: str | None, accept_encoding: str | None) -> bool:
    """Return whether a client that sent `accept_encoding` accepts a content coding (RFC 9110, 12.5.3)."""
    if content_encoding is None or accept_encoding is None:
        return True
    weights = parse_weights(accept_encoding.encode("latin-1", "replace"))
    rest = weights.get(b"*", 0.0)
    codings = [coding.strip().lower().encode("latin-1", "replace") for coding in content_encoding.split(",")]
    return all(weights.get(coding, rest) > 0 for coding in codings if coding not in (b"", b"identity"))


class BundleRequest(Struct, frozen=True):
    """A request that a bundle may answer, and the library of which it is made."""

    url: str
    cache_request: CacheRequest
    library: ModuleType


class StreamedAnswer(Struct, frozen=True):
    """A response whose payload is still to come."""

    response: ConditionalResponse
    begun: BegunResponse


class TransportOptions(Struct, frozen=True):
    """The options of a transport; `BundleTransport` describes them."""

    profile: Profile
    base_url: str | None
    require_nosniff: bool
    origins: Collection[str] | None
    max_bytes: int
    tell: MessageCallback
    clock: Callable[[], float]
    draw: Callable[[], float]


class Origins:
    """The origins that a bundle may answer for: those named, `*` for all, or by default its own.

    `source` is the URL that it comes from; a bundle that does not come from the network has an empty one, and answers
    for all origins by default.
    """

    def __init__(self, named: Collection[str] | None, source: str) -> None:
        self._is_own = named is None and bool(source)
        if named is None:
            named = [_origin(source)] if source else [_ANY]
        elif isinstance(named, str):
            named = [named]
        self._any = _ANY in named
        self._named = frozenset(_named_origin(name) for name in named if name != _ANY)

    def allow(self, url: str) -> bool:
        """Return whether the bundle may answer for a URL."""
        return self._any or _origin(url) in self._named

    def check_source(self, requested: str, url: str) -> None:
        """Refuse a bundle that answers for its own origin and came from another, `url`, than was requested."""
        if self._is_own and not self.allow(url):
            raise FetchError(
                f"{requested}: redirected to {url}, which is another origin; "
                "name the origins that the bundle may answer for (origins=)"
            )


class TransportCore:
    """A bundle, open or to be fetched, and the responses out of it."""

    def __init__(self, source: Bundle | RemoteBundle | Source, options: TransportOptions) -> None:
        self.url = source if isinstance(source, str) and _WEB_URL.match(source) else ""
        """Where the bundle is to be fetched from; empty for one that is here."""
        self.bundle: Bundle | RemoteBundle | None = None
        """The bundle; None until it is fetched."""
        self._options = options
        self._origins = Origins(options.origins, source.url if isinstance(source, RemoteBundle) else self.url)
        self._backoff = FetchBackoff()
        self._is_own = not isinstance(source, (Bundle, RemoteBundle))
        if isinstance(source, (Bundle, RemoteBundle)):
            self.bundle = source
        elif not self.url:
            self.bundle = open_bundle(source, profile=options.profile, base_url=options.base_url)

    def close(self) -> None:
        """Close the bundle, if it was opened here; payloads in use stay valid."""
        if self._is_own and isinstance(self.bundle, Bundle):
            self.bundle.close()

    def request(self, request: Request) -> BundleRequest | None:
        """Return the request if the bundle may answer it; None if it is for the network."""
        url = str(request.url)
        found = parse_request(request.method, {name.lower(): value for name, value in request.headers.items()})
        if found is None or not self._origins.allow(url):
            return None
        return BundleRequest(url, found, library_of(request))

    def fetch(self) -> Work[Bundle]:
        """Fetch the bundle; raises `FetchError`, at once while a failure holds the next fetch back."""
        with self._fetching():
            reply: Reply = yield Send(self.url, UNCODED)
            self._origins.check_source(self.url, reply.url)
            check_reply(reply.url, reply.status, reply.fields, require_nosniff=self._options.require_nosniff)
            with Download(reply.url, reply.fields, max_bytes=self._options.max_bytes) as download:
                while (chunk := (yield NEXT_CHUNK)) is not None:
                    download.add(chunk)
                base_url = self._options.base_url or reply.url
                bundle = open_bundle(download.mapped(), profile=self._options.profile, base_url=base_url)
        self.bundle = bundle
        return bundle

    def answer(self, request: BundleRequest, bundle: Bundle) -> Any:
        """Return the response out of a bundle that is here; None where it has none, or one that is malformed."""
        location = _locate(request, bundle.metadata)
        if location is None:
            return None
        try:
            return self._respond(request, bundle, location, bundle.load(location))
        except ResponseError as error:
            self._report(request, error)
            return None

    def answer_remote(self, request: BundleRequest, bundle: RemoteBundle) -> Work[Any]:
        """Return the response out of a bundle on a server, whole or a `StreamedAnswer`; None as `answer` does."""
        location = _locate(request, bundle.metadata)
        if location is None:
            return None
        try:
            with self._fetching():
                begun = yield from bundle.core.begin(location)
            if has_mi_coding(begun.head.stored_headers):
                whole = yield from self._keep(request, begun)
                return self._respond(request, bundle, location, whole)
        except (ResponseError, FetchError) as error:
            self._report(request, error)
            return None
        headers = Headers({**begun.head.stored_headers, NOSNIFF[0]: NOSNIFF[1]})
        found = make_response(request.cache_request, begun.head.status, headers, begun.head.payload.length)
        return found and StreamedAnswer(found, begun)

    def _keep(self, request: BundleRequest, begun: BegunResponse) -> Work[Response]:
        """Wait for a whole payload, which must be verified before any of it is used."""
        fields = {"content-length": str(begun.head.payload.length)}
        with Download(request.url, fields, max_bytes=self._options.max_bytes) as download:
            with self._fetching():
                while chunks := (yield from begun.body.chunks()):
                    for chunk in chunks:
                        download.add(chunk)
            return Response(begun.head.status, begun.head.stored_headers, memoryview(download.mapped()))

    def _respond(self, request: BundleRequest, bundle: OpenedBundle, location: Location, stored: Response) -> Any:
        """Return a response whose payload is here, verified if it was signed; raises `ResponseError`."""
        decoded = decode_response(bundle, location, stored)
        found = make_response(request.cache_request, decoded.status, decoded.headers, decoded.length)
        return found and library_response(request, found, _pieces(decoded, found.start, found.stop))

    @contextmanager
    def _fetching(self) -> Iterator[None]:
        """Remember a failure of the fetch inside; raise `FetchError` while an earlier one holds it back.

        An error in a single response is not a failure of the fetch, and neither is a request that was not sent.
        """
        sent = self._options.clock()
        self._backoff.check(now=sent)
        try:
            yield
        except (NoContact, ResponseError):
            raise
        except Exception as error:
            retry_after = error.retry_after if isinstance(error, FetchError) else ""
            reason = str(error) if isinstance(error, FetchError) else f"{self.url}: {error}"
            now, draw = self._options.clock(), self._options.draw()
            self._backoff.failed(reason, retry_after, sent=sent, now=now, draw=draw)
            raise
        self._backoff.succeeded()

    def _report(self, request: BundleRequest, error: ResponseError | FetchError) -> None:
        self._options.tell(f"{request.url}: the response in the bundle cannot be used: {error}")


def library_response(
    request: BundleRequest,
    found: ConditionalResponse,
    chunks: Iterator[bytes] | AsyncIterator[bytes],
    close: Any = None,
) -> Any:
    """Return a response of the request's library; `close` is called when it is closed."""
    body = byte_stream(request.library)(chunks, close)
    return request.library.Response(found.status, headers=found.fields, stream=body)


def not_stored(request: BundleRequest) -> Any:
    """Return the response to an only-if-cached request that the bundle cannot answer (RFC 9111, 5.2.1.7)."""
    body = byte_stream(request.library)(iter(()))
    return request.library.Response(504, headers={"content-length": "0"}, stream=body)


def _locate(request: BundleRequest, metadata: Metadata) -> Location | None:
    try:
        return select_location(metadata, request.url, request.cache_request.headers)
    except NotInBundle:
        return None


def _pieces(decoded: DecodedResponse, start: int, stop: int) -> Iterator[bytes]:
    """Yield the content from `start` to before `stop`; no more than a chunk is copied at a time."""
    for begin in range(start, stop, CHUNK_SIZE):
        yield b"".join(decoded.pieces(begin, min(begin + CHUNK_SIZE, stop)))


def _origin(url: str) -> str:
    """Return a URL's scheme, host and port; a text that is not a URL is its own origin, which no request has."""
    return "/".join((parse_url(url) or url).split("/", 3)[:3])


def _named_origin(text: str) -> str:
    if parse_url(text) is None:
        raise ConfigurationError(f"invalid origin {text!r}; expected a URL such as https://example.com, or *")
    return _origin(text)
