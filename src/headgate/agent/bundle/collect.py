"""A list of URLs, fetched politely: one after another, as slowly as the servers ask, never more than was allowed."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self

from headgate.agent.bundle.fetch import TIMEOUT, Fetcher
from headgate.agent.bundle.intake import REDIRECTS, Intake, Limits, TooMuch
from headgate.agent.library import Client
from headgate.bundle.exchange import Exchange
from headgate.bundle.sources.chosen import web_url
from headgate.bundle.sources.left_out import Tell, Unfit, silent
from headgate.errors import FetchError, MissingExtra
from headgate.http.retry_after import retry_after
from headgate.http.url import resolve
from headgate.release import ASAP, Status, judge

__all__ = ["Collection", "collect"]

_MOST_HOPS: Final = 10
_MOST_TRIES: Final = 3
_BUSY: Final = frozenset({429, 503})
_PAUSE: Final = 1.0
"""Seconds before asking a busy server again that does not say when; twice as many the next time."""
_SHOWN: Final = 200


def collect(
    urls: Iterable[str],
    *,
    client: Client | None = None,
    tell: Tell = silent,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    max_wait: float = 60.0,
    timeout: float = TIMEOUT,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> "Collection":
    """Fetch URLs one after another, and yield an exchange for each, and for each redirect on the way.

    `client` is one of httpx2 or httpx; without one it has its own, which keeps no cookies. A server that is busy (429,
    503) is asked again when its `Retry-After` says so, twice at most, and not at all where that is more than `max_wait`
    seconds from now; nor is anything else there until then. A URL that cannot be had is told of and counted, in
    `failed`; `FetchError` is raised when none can, or when there is too much.
    """
    return Collection(
        urls, Fetcher(client, timeout=timeout), Intake(limits), _Manners(max_wait, clock, sleep), tell=tell
    )


class Collection:
    """An iterator over the exchanges of a list of URLs."""

    def __init__(
        self, urls: Iterable[str], fetcher: Fetcher, intake: Intake, manners: "_Manners", *, tell: Tell
    ) -> None:
        self.collected = 0
        """URLs of the list that were fetched so far; one that is there twice counts once."""
        self.failed = 0
        """URLs of the list that could not be."""
        self._fetcher = fetcher
        self._intake = intake
        self._manners = manners
        self._tell = tell
        self._seen: set[str] = set()
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
                    address = web_url(url)
                    if address in self._seen:
                        continue
                    yield from self._visit(address)
                except TooMuch:
                    raise
                except (Unfit, FetchError, MissingExtra) as error:
                    sentence = str(error) if str(error).startswith(url) else f"{url[:_SHOWN]}: {error}"
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
        """Yield the exchange of a URL, and of those that it redirects to, as far as they were not fetched before."""
        for _ in range(_MOST_HOPS + 1):
            if address in self._seen:
                return
            self._seen.add(address)
            exchange = self._fetch(address)
            yield exchange
            location = exchange.headers.get("location")
            if exchange.status not in REDIRECTS or location is None:
                return
            address = _onward(address, location)
        raise Unfit(f"more than {_MOST_HOPS} redirects")

    def _fetch(self, address: str) -> Exchange:
        for tries in range(_MOST_TRIES):
            self._manners.await_turn(address)
            with self._fetcher.get(address, {"Accept-Encoding": "identity"}, follow=False) as reply:
                if reply.status not in _BUSY:
                    return self._intake.take(address, reply.status, reply.pairs(), reply.chunks())
                self._manners.hold(address, reply.fields.get("retry-after", ""), tries)
        raise Unfit(f"busy, {_MOST_TRIES} times asked")


class _Manners:
    """When each origin may be asked again: the release times that busy ones gave."""

    def __init__(self, max_wait: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._max_wait = max_wait
        self._clock = clock
        self._sleep = sleep
        self._releases: dict[str, float] = {}

    def await_turn(self, url: str) -> None:
        """Sleep until the URL's origin may be asked; raises `Unfit` where that is too long from now."""
        release, now = self._releases.get(_origin(url), ASAP), self._clock()
        verdict = judge(release, now=now, max_delay=self._max_wait)
        if verdict is Status.REJECTED:
            raise Unfit(f"busy, and asks to be left alone for {release - now:.0f} s; try again then")
        if verdict is Status.DELAYED:
            self._sleep(release - now)

    def hold(self, url: str, asked: str, tries: int) -> None:
        """Leave an origin alone for as long as it asks, or for a while that grows with every try."""
        now, origin = self._clock(), _origin(url)
        release = retry_after(asked, now=now)
        if release == ASAP:
            release = now + _PAUSE * 2**tries
        self._releases[origin] = max(self._releases.get(origin, ASAP), release)


def _onward(address: str, location: str) -> str:
    """Give where a redirect leads; raises `Unfit` where nobody should follow."""
    target = resolve(location, address)
    try:
        onward = web_url(target or location)
    except Unfit as unfit:
        raise Unfit(f"redirects to {location[:_SHOWN]!r}: {unfit}") from None
    if address.startswith("https:") and onward.startswith("http:"):
        raise Unfit(f"redirects from https to {onward[:_SHOWN]}")
    return onward


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])
