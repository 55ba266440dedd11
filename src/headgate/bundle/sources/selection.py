"""Select one response for each URL."""

import re
from collections.abc import Iterator

from headgate.bundle.model import Exchange
from headgate.bundle.sources.skipped import SkipExchange, SkipReport
from headgate.http.url import has_credentials, parse_url, without_fragment

_ALL = re.compile(r"bytes 0-([0-9]{1,18})/([0-9]{1,18})")


class LatestPerUrl:
    """The exchanges to bundle: of each URL the last with a 2xx status, or else the last.

    A URL keeps the position where it was first seen, so a page stays before the resources that it loads.
    """

    def __init__(self, left_out: SkipReport) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._left_out = left_out

    def add(self, exchange: Exchange) -> None:
        """Add an exchange that is later than those before."""
        earlier = self._exchanges.get(exchange.url)
        if earlier is not None:
            self._left_out.add("the URL has several responses; the last with a 2xx status is used", exchange.url)
        if earlier is None or _succeeds(exchange) or not _succeeds(earlier):
            self._exchanges[exchange.url] = exchange

    def __iter__(self) -> Iterator[Exchange]:
        """Yield the selected exchanges."""
        return iter(self._exchanges.values())

    def __len__(self) -> int:
        """Return the number of selected exchanges."""
        return len(self._exchanges)


def normalize_http_url(text: str) -> str:
    """Return a URL in normal form, without fragment; raises `SkipExchange` for another than an http or https URL."""
    url = parse_url(text)
    if url is None:
        raise SkipExchange("not a URL")
    if not url.startswith(("http://", "https://")):
        raise SkipExchange("not http or https")
    if has_credentials(url):
        raise SkipExchange("a URL with a user name or a password in it")
    return without_fragment(url)


def check_status(status: int) -> None:
    """Raise `SkipExchange` for a status that has a meaning only with its request.

    `as_complete_response` checks 206 when the body is known.
    """
    if not 100 <= status <= 999:
        raise SkipExchange("without a response")
    if status < 200:
        raise SkipExchange("an interim response")
    if status == 304:
        raise SkipExchange("304: the response is missing, it was in a cache")


def as_complete_response(status: int, headers: dict[str, str], length: int) -> tuple[int, dict[str, str]]:
    """Return the status and headers of a response without its request, for a body of `length` bytes.

    Browsers request media by range, and a 206 may contain all of it. Raises `SkipExchange` for a part.
    """
    if status != 206:
        return status, headers
    found = _ALL.fullmatch(headers.get("content-range", ""))
    if found is None or not int(found[1]) + 1 == int(found[2]) == length:
        raise SkipExchange("206: a part of a response")
    return 200, {name: value for name, value in headers.items() if name != "content-range"}


def _succeeds(exchange: Exchange) -> bool:
    return 200 <= exchange.status < 300
