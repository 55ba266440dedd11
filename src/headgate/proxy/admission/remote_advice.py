"""How workers get the advice of origins: from the supervisor, which fetches it once for all of them.

A worker sends one query however many of its requests need the advice, and caches fresh advice, so known advice costs
nothing; a restarted worker gets what the supervisor has cached. Both ends and their messages are here; the channel
between them is the caller's.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

import msgspec

from headgate.advice.decision import Advice
from headgate.advice.fetching import ADVICE_TIMEOUT
from headgate.advice.freshness import MAX_FRESHNESS
from headgate.proxy.admission.authority import Authority, parse_authority
from headgate.proxy.admission.decide import AdviceSource
from headgate.proxy.refusal import ProxyErrorType, Refusal, RefusalReason
from headgate.proxy.sockets import Endpoint

REPLY_TIMEOUT: Final = 2 * ADVICE_TIMEOUT
"""Seconds to wait for the supervisor: longer than any fetch takes."""
_MAX_ORIGINS: Final = 10_000


class AdviceQuery(msgspec.Struct, frozen=True, tag=True):
    """Worker to supervisor: a query for the advice of an origin."""

    authority: str
    """Host and port, as the parser serialises them."""
    endpoints: tuple[tuple[str, int], ...]
    """Checked addresses and ports of the origin."""


PackedRefusal: TypeAlias = tuple[RefusalReason, str, ProxyErrorType | None]
"""A refusal in a message: its reason, detail and error type."""


class AdviceReply(msgspec.Struct, frozen=True, tag=True):
    """Supervisor to worker: the answer to an `AdviceQuery`."""

    origin: str
    advice: Advice | None = None
    """None for a failure of this machine."""
    refusal: PackedRefusal | None = None
    """Why the origin could not be connected to, or the advice not be fetched."""


async def answer_query(query: AdviceQuery, source: AdviceSource) -> AdviceReply:
    """Answer a worker. Raises only `CancelledError`: a worker always gets a reply."""
    authority = parse_authority(query.authority)
    assert authority is not None, "the worker has parsed it"
    advice, refusal = None, None
    try:
        endpoints = [Endpoint(ip_address(address), port) for address, port in query.endpoints]
        advice, refusal = await source.advice(authority, endpoints)
    except Refusal as error:
        refusal = error
    except Exception as error:
        context = {"message": f"answering a worker about {query.authority} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
        refusal = Refusal("internal", "the advice could not be fetched")
    return AdviceReply(authority.origin, advice, None if refusal is None else _packed(refusal))


class RemoteAdvice:
    """A worker's source of advice: queries the supervisor with `send`, and caches fresh advice; see `AdviceSource`.

    Waits at most `timeout` seconds for a reply. For one event loop.
    """

    def __init__(
        self,
        send: Callable[[AdviceQuery], None],
        *,
        timeout: float = REPLY_TIMEOUT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._send = send
        self._timeout = timeout
        self._clock = clock
        self._cache: OrderedDict[str, Advice] = OrderedDict()
        self._pending: dict[str, asyncio.Future[AdviceReply]] = {}
        """Queries that the supervisor has not answered yet, by origin."""
        self._is_closed = False

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Return the advice of a serialised origin, if a fresh copy is cached; see `AdviceSource`."""
        advice = self._cache.get(origin)
        if advice is None:
            return None
        if not 0 < advice.fresh_until - now <= MAX_FRESHNESS:
            del self._cache[origin]
            return None
        self._cache.move_to_end(origin)
        return advice

    async def advice(self, authority: Authority, endpoints: Sequence[Endpoint]) -> tuple[Advice, Refusal | None]:
        """Return the advice of an origin; see `AdviceSource`. Raises `Refusal` for a failure of this machine."""
        origin = authority.origin
        known = self.known(origin, now=self._clock())
        if known is not None:
            return known, None
        pending = self._pending.get(origin)
        if pending is None:
            pending = self._send_query(authority, endpoints)
        # A caller may be cancelled; others may wait for the same reply.
        reply = await asyncio.shield(pending)
        refusal = None
        if reply.refusal is not None:
            reason, detail, error_type = reply.refusal
            refusal = Refusal(reason, detail, error_type=error_type)
        if reply.advice is None:
            raise refusal or Refusal("connections", "the supervisor has ended")
        return reply.advice, refusal

    def pending_fetch(self, origin: str) -> asyncio.Future[Any] | None:
        """Return what completes with the pending query of a serialised origin, if any; see `AdviceSource`."""
        return self._pending.get(origin)

    def receive(self, reply: AdviceReply) -> None:
        """Handle a reply; the advice of one that arrives after the timeout is cached all the same."""
        if reply.advice is not None:
            self._cache[reply.origin] = reply.advice
            if len(self._cache) > _MAX_ORIGINS:
                self._cache.popitem(last=False)
        if reply.origin in self._pending:
            self._pending.pop(reply.origin).set_result(reply)

    def close(self) -> None:
        """Fail all queries, now and later: the supervisor has ended."""
        self._is_closed = True
        for origin in list(self._pending):
            self.receive(AdviceReply(origin))

    def _send_query(self, authority: Authority, endpoints: Sequence[Endpoint]) -> "asyncio.Future[AdviceReply]":
        origin, loop = authority.origin, asyncio.get_running_loop()
        pending = self._pending[origin] = loop.create_future()
        late = AdviceReply(origin, refusal=_packed(Refusal("internal", "the supervisor did not answer in time")))
        timer = loop.call_later(self._timeout, self.receive, late)
        pending.add_done_callback(lambda _: timer.cancel())
        if self._is_closed:
            self.receive(AdviceReply(origin))
        else:
            listed = tuple((endpoint.host, endpoint.port) for endpoint in endpoints)
            self._send(AdviceQuery(str(authority), listed))
        return pending


def _packed(refusal: Refusal) -> PackedRefusal:
    return refusal.reason, refusal.detail, refusal.error_type
