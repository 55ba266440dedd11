"""One answer for each URL, out of as many as were seen."""

import re
from collections.abc import Iterator

from headgate.bundle.model import Exchange
from headgate.bundle.sources.skipped import SkipExchange, SkipReport
from headgate.http.url import has_credentials, parse_url, without_fragment

__all__ = ["LatestPerUrl", "as_complete_response", "check_status", "normalize_http_url"]

_ALL = re.compile(r"bytes 0-([0-9]{1,18})/([0-9]{1,18})")


class LatestPerUrl:
    """The exchanges to bundle: of a URL the last answer with a 2xx status, or else the last.

    A page that is asked for again is newer, but a failure does not make it worse. A URL stands where it was first seen,
    so the page that brought the others stays before them.
    """

    def __init__(self, left_out: SkipReport) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._left_out = left_out

    def add(self, exchange: Exchange) -> None:
        """Take one more, seen after all before it."""
        earlier = self._exchanges.get(exchange.url)
        if earlier is not None:
            self._left_out.add("the URL has another answer: of several the last with a 2xx status stays", exchange.url)
        if earlier is None or _succeeds(exchange) or not _succeeds(earlier):
            self._exchanges[exchange.url] = exchange

    def __iter__(self) -> Iterator[Exchange]:
        """Yield those that stay."""
        return iter(self._exchanges.values())

    def __len__(self) -> int:
        """How many stay."""
        return len(self._exchanges)


def normalize_http_url(text: str) -> str:
    """Give the URL as a bundle names it, without its fragment; `Unfit` for one that no bundle of the web can hold."""
    url = parse_url(text)
    if url is None:
        raise SkipExchange("not a URL")
    if not url.startswith(("http://", "https://")):
        raise SkipExchange("not http or https")
    if has_credentials(url):
        raise SkipExchange("a URL with a user name or a password in it")
    return without_fragment(url)


def check_status(status: int) -> None:
    """Raise `Unfit` for the status of an answer that means nothing away from its request.

    206 is for `whole` to judge, once the body is there.
    """
    if not 100 <= status <= 999:
        raise SkipExchange("no answer came")
    if status < 200:
        raise SkipExchange("an interim answer")
    if status == 304:
        raise SkipExchange("304: the answer was in a cache, and is not here")


def as_complete_response(status: int, headers: dict[str, str], length: int) -> tuple[int, dict[str, str]]:
    """Give the status and headers that a response without its request has, for a body of `length` bytes.

    Browsers ask for films and sounds by range, and then 206 may be the answer with all of it. `Unfit` for a part.
    """
    if status != 206:
        return status, headers
    found = _ALL.fullmatch(headers.get("content-range", ""))
    if found is None or not int(found[1]) + 1 == int(found[2]) == length:
        raise SkipExchange("206: a part of a response")
    return 200, {name: value for name, value in headers.items() if name != "content-range"}


def _succeeds(exchange: Exchange) -> bool:
    return 200 <= exchange.status < 300
