"""Collect responses for a bundle: fetch a list of URLs one after another, within limits.

A `Courtesy` decides when each request is sent.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from headgate.advice import AgentIdentity
from headgate.agent.advice_client import in_thread
from headgate.agent.bundle.fetcher import Fetcher, Reply
from headgate.agent.courtesy import Courtesy
from headgate.agent.httpx_library import Client
from headgate.bundle.files.payloads import Spool, SpooledPayload
from headgate.bundle.model import Exchange
from headgate.bundle.sources.codings import DECODERS, decode_chunks, limit_length, parse_codings
from headgate.bundle.sources.selection import (
    MessageCallback,
    SkipExchange,
    check_status,
    filter_headers,
    ignore_message,
    normalize_http_url,
    with_content_type,
    without_content_encoding,
)
from headgate.errors import ConfigurationError, FetchError, MissingExtra, RetryLater, explaining, fail_if
from headgate.fetch.pace import FETCH_TIMEOUT, USER_AGENT
from headgate.http.date import retry_after
from headgate.http.url import resolve, serialised_origin
from headgate.throttle.throttle import REDIRECTS

_IN_MEMORY: Final = 1 << 20
"""Bytes of a body above which it is kept on disk."""
_MAX_REDIRECTS: Final = 10
_RETRIES: Final = 2
_MAX_DELAY: Final = 60.0
"""Seconds that a request may be held by default."""
_BRAND: Final = "headgate"
_BUSY: Final = frozenset({429, 503})
_MAX_SHOWN: Final = 200
"""Maximum characters of a URL or line in a message."""


class TooMuch(FetchError):
    """The responses together exceed the limit."""


class Limits(Struct, frozen=True):
    """Limits on what is collected."""

    max_body: int = 256 << 20
    """Bytes of one body, as sent and decoded; a longer one is left out."""
    max_total: int = 4 << 30
    """Bytes of all bodies; more is an error, since the rest would be missing."""


class ExchangeBuilder:
    """Builds exchanges; large bodies are kept in one temporary file."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spool = Spool()
        self._total = 0

    def build(self, url: str, status: int, fields: Iterable[tuple[str, str]], chunks: Iterable[bytes]) -> Exchange:
        """Build the exchange of a response to a plain GET.

        Raises `SkipExchange` for one that a bundle should not hold, and `TooMuch` where all exceed the limit.
        """
        check_status(status)
        if status == 206:
            raise SkipExchange("a part of the resource")
        if status >= 400:
            raise SkipExchange(f"answered {status}")
        headers = filter_headers(fields)
        codings = parse_codings(headers.get("content-encoding", ""))
        if "content-encoding" in headers and DECODERS.issuperset(codings):
            # Readers of the bundle may not support a coding that was not requested.
            chunks = limit_length(chunks, self._limits.max_body)  # an endless body may decode to nothing
            for coding in reversed(codings):
                chunks = decode_chunks(chunks, coding)
            headers = without_content_encoding(headers)
        payload = self._keep(self._limit_total(limit_length(chunks, self._limits.max_body)))
        return Exchange(url, status, with_content_type(headers), payload)

    def _keep(self, chunks: Iterator[bytes]) -> bytes | SpooledPayload:
        parts, size = [], 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > _IN_MEMORY:
                return self._spool.append(chain(parts, chunks))
        return b"".join(parts)

    def _limit_total(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        total = self._total
        for chunk in chunks:
            total += len(chunk)
            if total > self._limits.max_total:
                raise TooMuch(f"all bodies together exceed the limit of {self._limits.max_total} bytes")
            yield chunk
        self._total = total


def collect(
    urls: Iterable[str],
    *,
    client: Client | None = None,
    identity: Iterable[str] | None = None,
    courtesy: Courtesy | None = None,
    tell: MessageCallback = ignore_message,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    timeout: float = FETCH_TIMEOUT,
) -> "Collection":
    """Fetch URLs one after another; the result yields an exchange for each, and for each redirect.

    `client` is an httpx2 or httpx client; by default an own one, which keeps no cookies, is used. `courtesy` decides
    when a request is sent and whether it is repeated; the default obeys each origin's traffic advice for `identity`,
    holds a request for up to 60 seconds, and repeats a failed one twice. If the last response is 429 or 503 with a
    Retry-After, the other URLs of its origin are not requested. For each URL that cannot be fetched, `tell` is called
    with the reason, and `failed` is increased. Iterating raises `FetchError` if no URL can be fetched, or if the bodies
    exceed `limits`.
    """
    if isinstance(urls, str) or not isinstance(urls, Iterable):
        raise ConfigurationError(f"collect needs a list of URLs, got {urls!r:.200}")
    names = AgentIdentity(_BRAND if identity is None else identity)
    if courtesy is None:
        courtesy = Courtesy(names, wait=_MAX_DELAY, retry=_RETRIES)
    user_agent = USER_AGENT if names.brand == _BRAND else f"{names.brand} {USER_AGENT}"
    fetcher = Fetcher(client, timeout=timeout, user_agent=user_agent)
    return Collection(urls, fetcher, ExchangeBuilder(limits), courtesy, tell=tell)


class Collection:
    """An iterator over the exchanges of a list of URLs."""

    def __init__(
        self,
        urls: Iterable[str],
        fetcher: Fetcher,
        builder: ExchangeBuilder,
        courtesy: Courtesy,
        *,
        tell: MessageCallback,
    ) -> None:
        self.collected = 0
        """URLs that were fetched so far; a repeated one counts once."""
        self.failed = 0
        """URLs that could not be fetched."""
        self._fetcher = fetcher
        self._start_fetch = in_thread(fetcher.get_advice)
        self._builder = builder
        self._courtesy = courtesy
        self._tell = tell
        self._seen: set[str] = set()
        self._busy: set[str | None] = set()
        self._exchanges = self._visit_all(urls)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Exchange:
        return next(self._exchanges)

    def _visit_all(self, urls: Iterable[str]) -> Iterator[Exchange]:
        first = ""
        try:
            for url in urls:
                try:
                    address = normalize_http_url(url)
                    if address in self._seen:
                        continue
                    yield from self._visit(address)
                except TooMuch:
                    raise
                except (SkipExchange, FetchError, RetryLater, MissingExtra) as error:
                    sentence = str(error) if str(error).startswith(url) else f"{url[:_MAX_SHOWN]}: {error}"
                    self.failed += 1
                    first = first or sentence
                    self._tell(f"left out {sentence}")
                    if isinstance(error, FetchError):
                        self._fetcher.renew()  # a call that has timed out would keep its thread and connection
                else:
                    self.collected += 1
        finally:
            self._fetcher.close()
        if self.failed and not self.collected:
            raise FetchError(f"none of the {self.failed} URLs could be fetched; {first}")

    def _visit(self, address: str) -> Iterator[Exchange]:
        """Yield the exchange of a URL, and those of its redirects, unless they were fetched before."""
        for _ in range(_MAX_REDIRECTS + 1):
            if address in self._seen:
                return
            self._seen.add(address)
            exchange = self._fetch(address)
            yield exchange
            location = exchange.headers.get("location")
            if exchange.status not in REDIRECTS or location is None:
                return
            address = _redirect_target(address, location)
        raise SkipExchange(f"more than {_MAX_REDIRECTS} redirects")

    def _fetch(self, address: str) -> Exchange:
        if serialised_origin(address) in self._busy:
            raise SkipExchange("not requested: its origin is busy and sent a Retry-After")
        attempt = self._courtesy.attempt("GET", address, start_fetch=self._start_fetch)
        while True:
            while (wait := attempt.wait()) is not None:
                wait.block()
            with ExitStack() as stack:
                try:
                    getting = self._fetcher.get(address, {"Accept-Encoding": "identity"}, follow=False)
                    reply = stack.enter_context(getting)
                except BaseException:
                    attempt.lost()
                    raise
                if attempt.received(reply.status, reply.pairs()):
                    self._note_busy(address, reply)
                    return self._builder.build(address, reply.status, reply.pairs(), reply.chunks())

    def _note_busy(self, address: str, reply: Reply) -> None:
        """Send no more requests to an origin that is busy after all retries, whatever the URL."""
        now = self._courtesy.clock()
        if reply.status in _BUSY and retry_after(reply.fields.get("retry-after", ""), now=now) > now:
            self._busy.add(serialised_origin(address))


def _redirect_target(address: str, location: str) -> str:
    """Return where a redirect leads; raises `SkipExchange` where it must not be followed."""
    target = resolve(location, address)
    try:
        location_url = normalize_http_url(target or location)
    except SkipExchange as error:
        raise SkipExchange(f"redirects to {location[:_MAX_SHOWN]!r}: {error}") from None
    if address.startswith("https:") and location_url.startswith("http:"):
        raise SkipExchange(f"redirects from https to {location_url[:_MAX_SHOWN]}")
    return location_url


def read_url_list(path: Path, *, name: str | None = None) -> list[str]:
    """Read the URLs in a file, in normal form, in the order they first appear; errors call the file `name`.

    Fragments are dropped. Raises `ConfigurationError` for a line that is not an http or https URL, and for a file that
    cannot be read or has no URL.
    """
    name = name or str(path)
    urls: dict[str, None] = {}
    with explaining(f"cannot read {name}", "expected a file with one URL per line"):
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode().strip()
            if text and not text.startswith("#"):
                urls.setdefault(normalize_http_url(text))
        except (UnicodeDecodeError, SkipExchange) as error:
            why = error if isinstance(error, SkipExchange) else "not UTF-8"
            shown = line[:_MAX_SHOWN].decode("utf-8", "replace")
            raise ConfigurationError(
                f"{name}, line {number}: {shown!r}: {why}; expected a URL such as https://example.com/"
            ) from None
    fail_if(not urls, f"{name} contains no URL; expected one per line")
    return list(urls)
