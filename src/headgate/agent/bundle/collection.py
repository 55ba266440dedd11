"""Fetch a list of URLs politely: one after another, each when a `Courtesy` allows it, within limits."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Final, Self

from headgate.advice import AgentIdentity
from headgate.agent.bundle.exchange_builder import REDIRECTS, ExchangeBuilder, Limits, TooMuch
from headgate.agent.bundle.fetcher import TIMEOUT, USER_AGENT, Fetcher, Reply
from headgate.agent.courtesy import Courtesy
from headgate.agent.fetch import in_thread
from headgate.agent.transports.httpx_library import Client
from headgate.bundle.model import Exchange
from headgate.bundle.sources.selection import MessageCallback, SkipExchange, ignore_message, normalize_http_url
from headgate.errors import FetchError, MissingExtra, NoContact
from headgate.http.retry_after import retry_after
from headgate.http.url import resolve

_MAX_REDIRECTS: Final = 10
_RETRIES: Final = 2
_MAX_DELAY: Final = 60.0
"""Seconds that a request may be held by default."""
_BRAND: Final = "headgate"
_BUSY: Final = frozenset({429, 503})
_MAX_SHOWN: Final = 200


def collect(
    urls: Iterable[str],
    *,
    client: Client | None = None,
    identity: Iterable[str] | None = None,
    courtesy: Courtesy | None = None,
    tell: MessageCallback = ignore_message,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    timeout: float = TIMEOUT,
) -> "Collection":
    """Fetch URLs one after another, and yield an exchange for each, and for each redirect on the way.

    `client` is one of httpx2 or httpx; without one it has its own, which keeps no cookies. `courtesy` decides when each
    request goes, and whether it is sent again; by default it asks each origin for its traffic advice as `identity`,
    waits for at most 60 seconds, and sends a request that failed twice more. An origin that is still busy then (429,
    503), with a Retry-After, is not asked for its other URLs. A URL that cannot be fetched is passed to `tell` and
    counted, in `failed`; `FetchError` is raised when none can, or when there is too much.
    """
    names = AgentIdentity(_BRAND if identity is None else identity)
    if courtesy is None:
        courtesy = Courtesy(names, max_delay=_MAX_DELAY, retry=_RETRIES)
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
        self._busy: set[str] = set()
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
                except (SkipExchange, FetchError, NoContact, MissingExtra) as error:
                    sentence = str(error) if str(error).startswith(url) else f"{url[:_MAX_SHOWN]}: {error}"
                    self.failed += 1
                    first = first or sentence
                    self._tell(f"left out {sentence}")
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
        if _origin(address) in self._busy:
            raise SkipExchange("not requested: its origin is busy and sent a Retry-After")
        attempt = self._courtesy.attempt("GET", address, start_fetch=self._start_fetch)
        while True:
            while (wait := attempt.wait()) is not None:
                wait.block()
            with ExitStack() as stack:
                with attempt:
                    getting = self._fetcher.get(address, {"Accept-Encoding": "identity"}, follow=False)
                    reply = stack.enter_context(getting)
                if attempt.received(reply.status, reply.pairs()):
                    self._note_busy(address, reply)
                    return self._builder.build(address, reply.status, reply.pairs(), reply.chunks())

    def _note_busy(self, address: str, reply: Reply) -> None:
        """Send no more requests to an origin that is busy after all retries, whatever the URL."""
        now = self._courtesy.clock()
        if reply.status in _BUSY and retry_after(reply.fields.get("retry-after", ""), now=now) > now:
            self._busy.add(_origin(address))


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


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])
