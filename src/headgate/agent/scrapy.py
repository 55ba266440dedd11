"""A polite downloader middleware for Scrapy.

Each request comes here just before the downloader: retries and redirects too, which Scrapy sends as new requests. A
request that is held waits here. When a response holds an origin, those that are in the downloader's slot already wait
there: the next download of the slot is delayed until the release.
"""

from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet

from headgate.agent.attempt import Attempt, Failure
from headgate.agent.courtesy import Courtesy
from headgate.agent.transport import is_interactive, set_fields
from headgate.errors import MissingExtra, RetryLater
from headgate.http.url import serialised_origin

try:
    from scrapy import Request, signals
    from scrapy.crawler import Crawler
    from scrapy.exceptions import (
        CannotResolveHostError,
        DownloadConnectionRefusedError,
        DownloadFailedError,
        DownloadTimeoutError,
        IgnoreRequest,
        ResponseDataLossError,
    )
    from scrapy.http import Response
    from scrapy.utils.asyncio import call_later
except ImportError:
    raise MissingExtra("scrapy", "headgate.agent.scrapy") from None

__all__ = ["CourtesyMiddleware", "Held"]

_UNSENT = (DownloadConnectionRefusedError, CannotResolveHostError)
_BROKEN = (DownloadFailedError, DownloadTimeoutError, ResponseDataLossError)


class Held(RetryLater, IgnoreRequest):
    """A request was held, and not sent."""


class CourtesyMiddleware:
    """For `DOWNLOADER_MIDDLEWARES = {"headgate.agent.scrapy.CourtesyMiddleware": 950}`, the last but your own.

    The setting `COURTESY` is a `Courtesy`, or the name of the agent; then, and without it, requests wait for as long as
    it takes. With a limited `wait`, a request that is held for longer is ignored, and its errback gets a `Held`. Scrapy
    itself retries; the `retry` of the courtesy is not used. Advice is fetched by headgate's own client.

    For a request that a user waits for, use `meta={"headgate": {"interactive": True}}`. Needs Scrapy's default reactor,
    the one of asyncio.
    """

    def __init__(self, courtesy: Courtesy, crawler: Crawler) -> None:
        self._courtesy = courtesy
        self._crawler = crawler
        self._attempts: WeakKeyDictionary[Request, Attempt] = WeakKeyDictionary()
        self._to_sign: WeakSet[Request] = WeakSet()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the middleware of a crawler from its setting `COURTESY`."""
        given: Any = crawler.settings.get("COURTESY")
        made = cls(given if isinstance(given, Courtesy) else Courtesy(given, wait=True), crawler)
        crawler.signals.connect(made.response_downloaded, signal=signals.response_downloaded)
        if made._courtesy is not given:
            crawler.signals.connect(made._courtesy.close, signal=signals.spider_closed)
        return made

    async def process_request(self, request: Request) -> None:
        """Return when the request may be sent; raises `Held` if that is too late."""
        attempt = self._courtesy.attempt(
            request.method,
            request.url,
            interactive=is_interactive(request.meta.get("headgate")),
            repeatable=False,  # Scrapy's own middleware retries
            refusal=Held,
        )
        try:
            while (wait := attempt.wait()) is not None:
                await wait.settle()
            if attempt.adds_fields:
                set_fields(attempt, request.headers)
        except BaseException:
            attempt.lost()
            raise
        self._attempts[request] = attempt

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Count a response, and delay the slot if the origin is held: before the slot starts its next download."""
        attempt = self._attempts.pop(request, None)
        if attempt is not None:
            fields = [(name, value) for name, values in response.headers.items() for value in values]
            attempt.received(response.status, fields)
            if attempt.asks_for_signature:
                self._to_sign.add(request)
            self._delay_slot(request)

    def process_response(self, request: Request, response: Response) -> Request | Response:
        """Send a request again, with a signature, if the response asks for one."""
        return request.replace(dont_filter=True) if request in self._to_sign else response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Count a request without a response."""
        attempt = self._attempts.pop(request, None)
        if attempt is not None:
            kinds: dict[bool, Failure] = {
                isinstance(exception, _BROKEN): "broken",
                isinstance(exception, _UNSENT): "unsent",
            }
            attempt.lost(exception, kinds.get(True, "ours"))
            self._delay_slot(request)

    def _delay_slot(self, request: Request) -> None:
        """Start no download of the request's slot while its origin is held."""
        found = self._courtesy.explain(request.url)
        downloader: Any = self._crawler.engine and self._crawler.engine.downloader
        slot = downloader.slots.get(request.meta.get(downloader.DOWNLOAD_SLOT)) if downloader else None
        if (
            slot is not None
            and found.held
            and found.reason != "pace"
            and found.target == serialised_origin(request.url)
        ):
            slot.close()  # ends the delay that it has
            call = downloader._latercall  # noqa: SLF001 - what Scrapy calls at the end of a slot's own delay
            slot.latercall = call_later(found.release - found.now, call, slot)
