"""The advice of origins, fetched over connections to the checked addresses that the tunnel will be connected to.

However many CONNECT requests need it at once, it is fetched once, and the fetch goes on if they are cancelled. There is
one for all workers: with several workers it runs in the supervisor, and `remote_advice` connects them to it.
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
from headgate.advice.cache import Fetch
from headgate.advice.decision import Advice
from headgate.advice.fetching import ADVICE_TIMEOUT, NETWORK_ERROR, AdviceResponse
from headgate.advice.freshness import MIN_FRESHNESS, UNREACHABLE_FOR
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.fetch.destinations import Address
from headgate.fetch.fetcher import Streams, exchange
from headgate.proxy.admission.authority import Authority
from headgate.proxy.counters import Counts, add_count
from headgate.proxy.dial import MAX_ATTEMPTS, dial, interleaved
from headgate.proxy.refusal import Refusal
from headgate.proxy.sockets import Endpoint

_MAX_ORIGINS: Final = 20_000
"""Origins whose advice is cached: up to 3.5 KiB each, if untrusted origins fill the cache on purpose."""

MAX_FETCHES_PER_ADDRESS: Final = 32
"""Concurrent fetches over connections to one address, over all origins there."""

_TCP_INFO_SIZE: Final = 256
_BYTES_SENT: Final = slice(200, 208)
"""Where `tcpi_bytes_sent` is in Linux's `struct tcp_info`, since version 4.19."""


class AdviceService:
    """Fetches and caches the advice of origins; for one event loop.

    `counts` counts fetches and the bytes of requests. `unreachable_for` is how many seconds an unreachable origin is
    held, unless it sends `Retry-After`; other results stay fresh for at least `min_freshness` seconds.
    """

    def __init__(
        self,
        brand: str,
        *,
        tls: ssl.SSLContext,
        counts: Counts,
        unreachable_for: float = UNREACHABLE_FOR,
        min_freshness: float = MIN_FRESHNESS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = AdviceCache(
            AgentIdentity.of(brand, prefetch_proxy=True),
            most_origins=_MAX_ORIGINS,
            unreachable_for=unreachable_for,
            min_freshness=min_freshness,
        )
        self._tls = tls
        self._counts = counts
        self._clock = clock
        self._fetching: Counter[Address] = Counter()
        self._pending: dict[str, asyncio.Task[tuple[Advice, Refusal | None]]] = {}

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Return the fresh advice of a serialised origin, if it is cached; see `AdviceSource`."""
        return self._cache.known(origin, now=now)

    async def advice(self, authority: Authority, endpoints: Sequence[Endpoint]) -> tuple[Advice, Refusal | None]:
        """Return the advice of an origin; see `AdviceSource`. Raises `Refusal` for a failure of this machine."""
        origin = authority.origin
        answer = self._cache.ask(origin, now=self._clock())
        if isinstance(answer, Advice):
            return answer, None
        if isinstance(answer, Fetch):
            self._start_fetch(answer, authority, endpoints)
        pending = self._pending[origin]
        # A caller may be cancelled; the fetch goes on for the others.
        return await asyncio.shield(pending)

    def pending_fetch(self, origin: str) -> asyncio.Future[Any] | None:
        """Return what completes with the pending fetch of a serialised origin, if any; see `AdviceSource`."""
        return self._pending.get(origin)

    def close(self) -> None:
        """Cancel all fetches."""
        for fetch in list(self._pending.values()):
            fetch.cancel()

    def _start_fetch(self, fetch: Fetch, authority: Authority, endpoints: Sequence[Endpoint]) -> None:
        origin = authority.origin
        pending = asyncio.ensure_future(self._run_fetch(fetch, authority, endpoints))
        self._pending[origin] = pending

        def finished(task: "asyncio.Task[tuple[Advice, Refusal | None]]") -> None:
            if self._pending.get(origin) is task:
                del self._pending[origin]
            if task.cancelled() or task.exception() is not None:
                self._cache.abandoned(fetch)  # the next request fetches again

        pending.add_done_callback(finished)

    async def _run_fetch(
        self, fetch: Fetch, authority: Authority, endpoints: Sequence[Endpoint]
    ) -> tuple[Advice, Refusal | None]:
        """Run one fetch, and store what it returns. Raises only `Refusal`, for a failure of this machine."""
        try:
            with self._limit_fetches(endpoints):
                response, unreachable_reason = await self._fetch(fetch, authority, endpoints)
            if unreachable_reason is not None and unreachable_reason.reason == "connections":
                raise unreachable_reason
            advice = self._cache.received(fetch, response, now=self._clock())
            add_count(self._counts.advice_fetches, _result_word(advice))
        except Refusal:
            raise
        except Exception as error:
            context = {"message": f"fetching the advice of {fetch.origin} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            raise Refusal("internal", "the advice could not be fetched") from error
        return advice, unreachable_reason

    @contextmanager
    def _limit_fetches(self, endpoints: Sequence[Endpoint]) -> Iterator[None]:
        """Count a fetch for each address that may be connected to; raises `Refusal` if one has too many.

        The owner of a domain can have any number of names, all of them at the address of a third party.
        """
        addresses = {endpoint.address for endpoint in islice(interleaved(endpoints), MAX_ATTEMPTS)}
        for address in addresses:
            if self._fetching[address] >= MAX_FETCHES_PER_ADDRESS:
                raise Refusal("advice_unreachable", f"{MAX_FETCHES_PER_ADDRESS} fetches from {address} are pending")
        self._fetching.update(addresses)
        try:
            yield
        finally:
            self._fetching.subtract(addresses)
            self._fetching = +self._fetching  # without addresses that have none left

    async def _fetch(
        self, fetch: Fetch, authority: Authority, endpoints: Sequence[Endpoint]
    ) -> tuple[AdviceResponse, Refusal | None]:
        loop = asyncio.get_running_loop()
        until = loop.time() + ADVICE_TIMEOUT
        try:
            sock = await dial(endpoints, seconds=ADVICE_TIMEOUT)
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
    """Return how many bytes a TCP connection has sent, TLS included; 0 if the system does not report it."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    return int.from_bytes(info[_BYTES_SENT], sys.byteorder)


def _result_word(advice: Advice) -> str:
    if advice.result is UNREACHABLE:
        return "unreachable"
    return "entry" if isinstance(advice.result, AdviceEntry) else "none"
