"""The system's resolver, asked in threads: it blocks, cannot be stopped, and may take half a minute.

Each lookup has a thread of its own, a daemon, which no exit waits for. Threads are limited altogether and for each
client, so that a client that names hosts of a dead name server holds up its own lookups; and CONNECTs that ask for one
name at once share one lookup, so that a host whose name server is dead holds one thread. No caller waits longer than
the timeout; a thread that is still waiting then is left to itself. Nothing is remembered.

All counts are kept on the event loop; a thread only asks and reports.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

from headgate.proxy.net.endpoint import Address
from headgate.proxy.refusal import EXHAUSTED, Refusal

__all__ = ["LOOKUP_TIMEOUT", "SystemLookup"]

LOOKUP_TIMEOUT: Final = 6.0
"""Seconds. The system asks a name server again after five (resolv.conf(5)), so that one lost packet is survived."""

_Found: TypeAlias = tuple[Address, ...]


class _Client:
    """The turns of one client."""

    def __init__(self, threads: int) -> None:
        self.turns = asyncio.Semaphore(threads)
        self.users = 0
        """Callers that wait for a turn, and threads."""


class SystemLookup:
    """Looks names up: `await lookup("www.example.org", client)` gives the addresses, in the system's order.

    At most `threads` ask at once, and `client_threads` for one client; further callers wait for their turn, and within
    `timeout` seconds of having asked there is an answer. Raises `Refusal` "name", and "connections" where the system
    gives no more threads, or no file to ask a name server with. For one event loop.
    """

    def __init__(
        self,
        *,
        threads: int = 512,
        client_threads: int = 32,
        timeout: float = LOOKUP_TIMEOUT,
        getaddrinfo: Callable[..., Any] = socket.getaddrinfo,
    ) -> None:
        self._timeout = timeout
        self._getaddrinfo = getaddrinfo
        self._client_threads = client_threads
        self._threads = asyncio.Semaphore(threads)
        self._clients: dict[bytes, _Client] = {}
        self._under_way: dict[str, asyncio.Future[_Found | Refusal]] = {}

    async def __call__(self, host: str, client: bytes) -> _Found:
        """Look a name up, written as the WHATWG's parser writes it; at least one address, each once."""
        try:
            async with asyncio.timeout(self._timeout):
                if host not in self._under_way:
                    await self._begin(host, client)
                outcome = await asyncio.shield(self._under_way[host])
        except TimeoutError:
            why = f"{host} was not resolved within {self._timeout:g} s"
            raise Refusal("name", why, error_type="dns_timeout") from None
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    async def _begin(self, host: str, client: bytes) -> None:
        """Wait for a turn and start a thread, unless another caller has started one for this name meanwhile."""
        mine = self._clients.setdefault(client, _Client(self._client_threads))
        with ExitStack() as taken:
            mine.users += 1
            taken.callback(self._leave, client)
            await mine.turns.acquire()
            taken.callback(mine.turns.release)
            await self._threads.acquire()
            taken.callback(self._threads.release)
            if host not in self._under_way:
                self._under_way[host] = self._start(host, taken)

    def _leave(self, client: bytes) -> None:
        """Forget a client that waits for nothing."""
        mine = self._clients[client]
        mine.users -= 1
        if not mine.users:
            del self._clients[client]

    def _start(self, host: str, taken: ExitStack) -> "asyncio.Future[_Found | Refusal]":
        """Start a thread, which has what is taken until it ends. Raises `Refusal` where there are no threads."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Found | Refusal] = loop.create_future()

        def end(outcome: _Found | Refusal) -> None:
            kept.close()
            del self._under_way[host]
            answer.set_result(outcome)

        def serve() -> None:
            outcome = self._ask(host)
            with suppress(RuntimeError):  # the loop is closed, and no caller waits for this
                loop.call_soon_threadsafe(end, outcome)

        try:
            threading.Thread(target=serve, name="headgate-lookup", daemon=True).start()
        except RuntimeError as error:
            raise Refusal("connections", f"the system gives no more threads: {error}") from None
        kept = taken.pop_all()
        return answer

    def _ask(self, host: str) -> _Found | Refusal:
        try:
            # As bytes, which no codec of Python's has a word in.
            found = self._getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
            addresses: dict[Address, None] = {}
            for *_, sockaddr in found:
                with suppress(ValueError):  # nothing but an address is an answer
                    addresses[ip_address(str(sockaddr[0]).partition("%")[0])] = None
        except Exception as error:  # whatever it is: the callers have to be answered
            why = f"{host} does not resolve: {getattr(error, 'strerror', None) or error}"
            return Refusal("connections" if _is_ours(error) else "name", why)
        return tuple(addresses) if addresses else Refusal("name", f"{host} has no address")


def _is_ours(error: Exception) -> bool:
    """Say whether a lookup failed for what this process lacks, whose fault no name is."""
    # A resolver's own errors have numbers of their own, which mean something else.
    return isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno in EXHAUSTED
