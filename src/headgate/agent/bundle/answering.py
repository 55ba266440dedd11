"""What the two transports share: where their bundle is, which requests it answers, and with what response.

Nothing here sends anything.
"""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from headgate.agent.bundle.download import Download
from headgate.agent.bundle.fetch_backoff import FetchBackoff
from headgate.agent.bundle.matching import Answer, Wanted, answered, wanted
from headgate.agent.bundle.opened import CHUNK, RemoteBundle, StreamedResponse
from headgate.agent.bundle.parts import Fields, check_served, check_uncoded, unexpected_status
from headgate.agent.library import Request, byte_stream, library_of
from headgate.bundle.api import open_bundle
from headgate.bundle.files.byte_source import Source
from headgate.bundle.model import Location, Metadata, Profile, Response
from headgate.bundle.reading.lookup import select_location
from headgate.bundle.reading.mi_decoding import DecodedResponse, OpenedBundle, decode_response
from headgate.bundle.reading.reader import Bundle
from headgate.bundle.sources.skipped import MessageCallback
from headgate.errors import ConfigurationError, FetchError, NoContact, NotInBundle, ResponseError
from headgate.http.url import parse_url

__all__ = ["Answering", "Asked", "Origins", "not_stored", "response", "skipping"]

_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_ANY: Final = "*"


class Asked(Struct, frozen=True):
    """A request that a bundle may answer, and the library that it, and so its answer, is made of."""

    url: str
    wanted: Wanted
    library: ModuleType


class Origins:
    """The origins that a bundle may answer for: those named, `*` for all, or without a name its own.

    `source` is the URL that it comes from, whose origin is its own; a bundle that is not from the network, with an
    empty one, answers for all.
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
        """Say whether the bundle may answer for a URL."""
        return self._any or _origin(url) in self._named

    def check_source(self, asked: str, url: str) -> None:
        """Refuse a bundle that answers for its own origin and came from `url`, another one than was asked."""
        if self._is_own and not self.allow(url):
            raise FetchError(
                f"{asked}: redirected to {url}, which is another origin; "
                "name the origins that the bundle may answer for (origins=)"
            )


class Answering:
    """A bundle: open, or yet to be fetched; and the answers it gives. `BundleTransport` says what the arguments are."""

    def __init__(
        self,
        source: Bundle | RemoteBundle | Source,
        *,
        profile: Profile,
        base_url: str | None,
        require_nosniff: bool,
        origins: Collection[str] | None,
        max_bytes: int,
        tell: MessageCallback,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self.tell = tell
        self.url = source if isinstance(source, str) and _WEB.match(source) else ""
        """Where the bundle is to be fetched from; empty where that is not needed."""
        self.bundle: Bundle | RemoteBundle | None = None
        """The bundle; None until it is fetched."""
        self._profile: Profile = profile
        self._base_url = base_url
        self._require_nosniff = require_nosniff
        self._origins = Origins(origins, source.url if isinstance(source, RemoteBundle) else self.url)
        self._max_bytes = max_bytes
        self._clock = clock
        self._draw = draw
        self._backoff = FetchBackoff()
        self._is_ours = not isinstance(source, (Bundle, RemoteBundle))
        if isinstance(source, (Bundle, RemoteBundle)):
            self.bundle = source
        elif not self.url:
            self.bundle = open_bundle(source, profile=profile, base_url=base_url)

    def close(self) -> None:
        """Close the bundle, if it was opened here; what was handed out of it stays valid."""
        if self._is_ours and isinstance(self.bundle, Bundle):
            self.bundle.close()

    def asked(self, request: Request) -> Asked | None:
        """Say what a request asks of a bundle; None where it is the network's business."""
        url = str(request.url)
        asks = wanted(request.method, {name.lower(): value for name, value in request.headers.items()})
        if asks is None or not self._origins.allow(url):
            return None
        return Asked(url, asks, library_of(request))

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Remember what a fetch inside fails with; raise `FetchError` at once while that holds the next one back.

        What is wrong with a single response is not a failure of the fetch, and neither is a request that was not sent.
        """
        sent = self._clock()
        self._backoff.check(now=sent)
        try:
            yield
        except (NoContact, ResponseError):
            raise
        except Exception as error:
            asked = error.retry_after if isinstance(error, FetchError) else ""
            why = str(error) if isinstance(error, FetchError) else f"{self.url}: {error}"
            self._backoff.failed(why, asked, sent=sent, now=self._clock(), draw=self._draw())
            raise
        self._backoff.succeeded()

    def download(self, url: str, status: int, fields: Fields) -> Download:
        """Judge the head of the answer that a bundle comes in, and give what keeps its body."""
        self._origins.check_source(self.url, url)
        if status != 200:
            raise unexpected_status(url, status, fields)
        check_served(url, fields, require_nosniff=self._require_nosniff)
        check_uncoded(url, fields)
        return Download(url, fields, most=self._max_bytes)

    def open(self, url: str, download: Download) -> Bundle:
        """Open a bundle that is all there now."""
        bundle = open_bundle(download.mapped(), profile=self._profile, base_url=self._base_url or url)
        self.bundle = bundle
        return bundle

    def locate(self, asked: Asked, metadata: Metadata) -> Location | None:
        """Say where the response is; None where the bundle has none that fits."""
        try:
            return select_location(metadata, asked.url, asked.wanted.headers)
        except NotInBundle:
            return None

    def from_memory(self, asked: Asked, bundle: Bundle) -> Any:
        """Answer out of a bundle that is here; None where it has nothing to say, or what it has is refused."""
        location = self.locate(asked, bundle.metadata)
        if location is None:
            return None
        try:
            return self.answer(asked, bundle, location, bundle.load(location))
        except ResponseError as error:
            self.tell_of(asked, error)
            return None

    def keeping(self, asked: Asked, stored: StreamedResponse[Any]) -> Download:
        """Give what keeps a payload that has to be checked before any of it is answered with."""
        return Download(asked.url, {"content-length": str(stored.length)}, most=self._max_bytes)

    def answer(self, asked: Asked, bundle: OpenedBundle, location: Location, stored: Response) -> Any:
        """Answer with a response that is here; None where it is of no use. Raises `ResponseError`.

        What signing has coded is checked to its end before: of a response that has been begun, nothing can be taken
        back.
        """
        found = decode_response(bundle, location, stored)
        answer = answered(asked.wanted, found.status, found.headers, found.length)
        return answer and response(asked, answer, _in_chunks(found, answer.start, answer.stop))

    def tell_of(self, asked: Asked, error: ResponseError | FetchError) -> None:
        """Say why the network is asked, though the bundle has a response."""
        self.tell(f"{asked.url}: the bundle's response is of no use: {error}")


def response(asked: Asked, answer: Answer, chunks: Iterator[bytes] | AsyncIterator[bytes], close: Any = None) -> Any:
    """Make a response of the library that the request is made of; `close` lets go of where its body comes from."""
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    body = byte_stream(asked.library)(chunks, close)
    return asked.library.Response(answer.status, headers=fields, stream=body)


def not_stored(asked: Asked) -> Any:
    """Answer whoever wants no network, and what the bundle does not have (RFC 9111, 5.2.1.7)."""
    body = byte_stream(asked.library)(iter(()))
    return asked.library.Response(504, headers={"content-length": "0"}, stream=body)


def skipping(start: int, stop: int) -> Callable[[bytes], bytes]:
    """Give what cuts the chunks it is handed, one after another, to the bytes from `start` to before `stop`."""
    position = 0

    def cut(chunk: bytes) -> bytes:
        nonlocal position
        begin, position = position, position + len(chunk)
        return chunk[max(0, start - begin) : max(0, stop - begin)]

    return cut


def _in_chunks(found: DecodedResponse, start: int, stop: int) -> Iterator[bytes]:
    """Yield the content from `start` to before `stop`; no more than a chunk is copied at a time."""
    for begin in range(start, stop, CHUNK):
        yield b"".join(found.pieces(begin, min(begin + CHUNK, stop)))


def _origin(url: str) -> str:
    """Give a URL's scheme, host and port; a text that is not a URL is its own origin, which no request has."""
    return "/".join((parse_url(url) or url).split("/", 3)[:3])


def _named_origin(text: str) -> str:
    if parse_url(text) is None:
        raise ConfigurationError(f"invalid origin {text!r}; expected a URL such as https://example.com, or *")
    return _origin(text)
