"""What origins advise, asked for over connections to the very addresses that the tunnel would be dialled to.

However many CONNECTs want to know at once, an origin is asked once, and the asking goes on when they have gone. One for
all workers: where there are several, this is in their parent, and `asking` brings them to it.
"""

import asyncio
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from headgate.advice import AdviceCache, AgentIdentity
from headgate.advice.answer import Advice, Fetch
from headgate.advice.fetching import NETWORK_ERROR, TIMEOUT, AdviceResponse
from headgate.advice.freshness import UNREACHABLE_FOR
from headgate.advice.result import UNREACHABLE, AdviceEntry
from headgate.fetch.fetcher import Streams, exchange
from headgate.proxy.admission.authority import Authority
from headgate.proxy.counters import Counts, add_count
from headgate.proxy.net.dial import MAX_ATTEMPTS, dial, interleaved
from headgate.proxy.net.endpoint import Address, Endpoint
from headgate.proxy.refusal import Refusal

__all__ = ["AdviceService"]

_MOST_ORIGINS: Final = 20_000
"""Origins whose advice is remembered: up to 3.5 KiB each, where strangers fill the memory on purpose."""

MAX_FETCHES_PER_ADDRESS: Final = 32
"""Fetches that are made at once over connections to one address, however many origins are there."""

_TCP_INFO_SIZE: Final = 256
_BYTES_SENT: Final = slice(200, 208)
"""Where `tcpi_bytes_sent` is in Linux's `struct tcp_info`, since version 4.19."""


class AdviceService:
    """Asks origins, and remembers what they said; for one event loop.

    `counts` is where fetches and the bytes of requests are counted; `unreachable_for` is how many seconds an origin
    that was not reached is held, unless it says how many.
    """

    def __init__(
        self,
        brand: str,
        *,
        tls: ssl.SSLContext,
        counts: Counts,
        unreachable_for: float = UNREACHABLE_FOR,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = AdviceCache(
            AgentIdentity.of(brand, prefetch_proxy=True), most_origins=_MOST_ORIGINS, unreachable_for=unreachable_for
        )
        self._tls = tls
        self._counts = counts
        self._clock = clock
        self._fetching: Counter[Address] = Counter()
        self._pending: dict[str, asyncio.Task[tuple[Advice, Refusal | None]]] = {}

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Give the fresh advice of a serialised origin, where it is known; see `Advising`."""
        return self._cache.known(origin, now=now)

    async def advice(self, authority: Authority, endpoints: Sequence[Endpoint]) -> tuple[Advice, Refusal | None]:
        """Give the advice of an origin; see `Advising`. Raises `Refusal` where nobody can be asked for our own want."""
        origin = authority.origin
        answer = self._cache.ask(origin, now=self._clock())
        if isinstance(answer, Advice):
            return answer, None
        if isinstance(answer, Fetch):
            self._begin(answer, authority, endpoints)
        flight = self._pending[origin]
        # Whoever waits may go; the asking is for those who come after, too.
        return await asyncio.shield(flight)

    def pending_fetch(self, origin: str) -> asyncio.Future[Any] | None:
        """Give what is done when a serialised origin has been asked, where that is under way; see `Advising`."""
        return self._pending.get(origin)

    def close(self) -> None:
        """Ask no more."""
        for flight in list(self._pending.values()):
            flight.cancel()

    def _begin(self, fetch: Fetch, authority: Authority, endpoints: Sequence[Endpoint]) -> None:
        origin = authority.origin
        flight = asyncio.ensure_future(self._fly(fetch, authority, endpoints))
        self._pending[origin] = flight

        def landed(task: "asyncio.Task[tuple[Advice, Refusal | None]]") -> None:
            if self._pending.get(origin) is task:
                del self._pending[origin]
            if task.cancelled():
                self._cache.abandoned(fetch)
            else:
                task.exception()  # told to whoever waits, if anybody still does

        flight.add_done_callback(landed)

    async def _fly(
        self, fetch: Fetch, authority: Authority, endpoints: Sequence[Endpoint]
    ) -> tuple[Advice, Refusal | None]:
        """Run one fetch. Raises only `Refusal`, for a failure of our own; the next to ask fetches again then."""
        try:
            return await self._ask(fetch, authority, endpoints)
        except Refusal:
            self._cache.abandoned(fetch)
            raise
        except Exception as error:
            self._cache.abandoned(fetch)
            told = {"message": f"fetching the advice of {fetch.origin} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)
            raise Refusal("internal", "its advice could not be fetched") from error

    async def _ask(
        self, fetch: Fetch, authority: Authority, endpoints: Sequence[Endpoint]
    ) -> tuple[Advice, Refusal | None]:
        with self._counted(endpoints):
            response, undialled = await self._fetch(fetch, authority, endpoints)
        if undialled is not None and undialled.reason == "connections":
            raise undialled
        advice = self._cache.received(fetch, response, now=self._clock())
        add_count(self._counts.advice_fetches, _kind(advice))
        return advice, undialled

    @contextmanager
    def _counted(self, endpoints: Sequence[Endpoint]) -> Iterator[None]:
        """Count a fetch for each address that may be dialled; raises `Refusal` where one has too many.

        The owner of a domain can have any number of names, all of them at the address of a third party.
        """
        addresses = {endpoint.address for endpoint in islice(interleaved(endpoints), MAX_ATTEMPTS)}
        for address in addresses:
            if self._fetching[address] >= MAX_FETCHES_PER_ADDRESS:
                raise Refusal("advice_unreachable", f"{MAX_FETCHES_PER_ADDRESS} origins at {address} are being asked")
        self._fetching.update(addresses)
        try:
            yield
        finally:
            self._fetching.subtract(addresses)
            self._fetching = +self._fetching  # without those that have none left

    async def _fetch(
        self, fetch: Fetch, authority: Authority, endpoints: Sequence[Endpoint]
    ) -> tuple[AdviceResponse, Refusal | None]:
        loop = asyncio.get_running_loop()
        until = loop.time() + TIMEOUT
        try:
            sock = await dial(endpoints, seconds=TIMEOUT)
        except Refusal as refusal:
            return NETWORK_ERROR._replace(failure=refusal.detail), refusal

        async def connect() -> Streams:
            return await asyncio.open_connection(sock=sock, ssl=self._tls, server_hostname=authority.name)

        with sock:
            left = max(0.0, until - loop.time())
            return await exchange(connect, fetch.request, seconds=left, closing=self._count), None

    def _count(self, connection: asyncio.StreamWriter) -> None:
        self._counts.advice_request_bytes += bytes_sent(connection.get_extra_info("socket"))


def bytes_sent(sock: Any) -> int:
    """Return how many bytes a TCP connection has sent, TLS included; 0 where the system does not tell."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    return int.from_bytes(info[_BYTES_SENT], sys.byteorder)


def _kind(advice: Advice) -> str:
    if advice.result is UNREACHABLE:
        return "unreachable"
    return "entry" if isinstance(advice.result, AdviceEntry) else "none"
