"""How the workers of a proxy learn what origins advise: from their parent, which asks each origin once for all of them.

A worker asks its parent once however many of its CONNECTs want to know, and keeps a copy of what is fresh; so known
advice costs it nothing, and a worker that was started anew learns what the parent knows. Here are both ends and what
they say to each other; the channel between them is somebody else's.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import msgspec

from headgate.advice.answer import Advice
from headgate.advice.fetching import TIMEOUT
from headgate.advice.freshness import MOST
from headgate.proxy.admission.authority import Authority, parse_authority
from headgate.proxy.admission.decide import AdviceSource
from headgate.proxy.net.endpoint import Endpoint
from headgate.proxy.refusal import SPECIFIC_ERRORS, ProxyErrorType, Reason, Refusal

__all__ = ["REPLY_TIMEOUT", "AdviceReply", "RemoteAdvice", "AdviceQuery", "answer_query"]

REPLY_TIMEOUT: Final = 2 * TIMEOUT
"""Seconds that a worker waits for its parent: longer than any fetch takes, so that it ends only a wait for nothing."""
_MOST_ORIGINS: Final = 10_000


class AdviceQuery(msgspec.Struct, frozen=True, tag=True):
    """Worker to parent: an origin's advice is wanted."""

    number: int
    """Which want of the worker's it is."""
    authority: str
    """Host and port, as the parser writes them."""
    endpoints: tuple[tuple[str, int], ...]
    """Where the origin may be dialled: checked addresses in figures, and ports."""


class _Why(msgspec.Struct, frozen=True):
    """A refusal on its way."""

    reason: Reason
    why: str
    nearer: ProxyErrorType | None


class AdviceReply(msgspec.Struct, frozen=True, tag=True):
    """Parent to worker: the answer to one `Want`."""

    number: int
    advice: Advice | None
    """None where nobody could be asked for the proxy's own want."""
    refusal: _Why | None
    """Why the origin could not be dialled, or nobody be asked."""


async def answer_query(want: AdviceQuery, advising: AdviceSource) -> AdviceReply:
    """Answer a worker, whatever happens meanwhile; only `CancelledError` is raised."""
    try:
        authority = parse_authority(want.authority)
        assert authority is not None, "the worker has parsed it"
        endpoints = [Endpoint(ip_address(address), port) for address, port in want.endpoints]
        advice, undialled = await advising.advice(authority, endpoints)
    except Refusal as refusal:
        return AdviceReply(want.number, None, _packed(refusal))
    except Exception as error:
        told = {"message": f"answering a worker about {want.authority} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(told)
        return AdviceReply(want.number, None, _packed(Refusal("internal", "its advice could not be looked up")))
    return AdviceReply(want.number, advice, None if undialled is None else _packed(undialled))


class _Question(NamedTuple):
    """A `Want` that the parent has not answered yet."""

    origin: str
    answer: asyncio.Future[AdviceReply]
    timer: asyncio.TimerHandle
    """Ends the wait for the answer."""


class RemoteAdvice:
    """A worker's end: what origins advise, asked of the parent with `send`; see `Advising`. For one event loop.

    A parent that has not answered after `timeout` seconds is not waited for any longer.
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
        self._copies: OrderedDict[str, Advice] = OrderedDict()
        self._wanted: dict[int, _Question] = {}
        self._pending: dict[str, asyncio.Future[AdviceReply]] = {}
        self._number = 0
        self._is_closed = False

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Give the advice of a serialised origin where there is a fresh copy; see `Advising`."""
        advice = self._copies.get(origin)
        if advice is None:
            return None
        if not 0 < advice.fresh_until - now <= MOST:
            del self._copies[origin]
            return None
        self._copies.move_to_end(origin)
        return advice

    async def advice(self, authority: Authority, endpoints: Sequence[Endpoint]) -> tuple[Advice, Refusal | None]:
        """Give the advice of an origin; see `Advising`. Raises `Refusal` where there is nobody to ask."""
        origin = authority.origin
        known = self.known(origin, now=self._clock())
        if known is not None:
            return known, None
        flight = self._pending.get(origin)
        if flight is None:
            flight = self._want(authority, endpoints)
        # Whoever waits may go; the others still want to know.
        advised = await asyncio.shield(flight)
        refusal = None if advised.refusal is None else _unpacked(advised.refusal)
        if advised.advice is None:
            raise refusal or Refusal("connections", "nobody can be asked")
        return advised.advice, refusal

    def pending_fetch(self, origin: str) -> asyncio.Future[Any] | None:
        """Give what is done when the parent answers for a serialised origin, where it is asked; see `Advising`."""
        return self._pending.get(origin)

    def hear(self, advised: AdviceReply) -> None:
        """Hear the parent's answer; one that comes after the timeout is ignored."""
        question = self._wanted.pop(advised.number, None)
        if question is None:
            return
        origin, flight, timer = question
        timer.cancel()
        del self._pending[origin]
        if advised.advice is not None:
            self._copies[origin] = advised.advice
            if len(self._copies) > _MOST_ORIGINS:
                self._copies.popitem(last=False)
        flight.set_result(advised)

    def close(self) -> None:
        """Hear that the parent is gone: nobody answers any more."""
        self._is_closed = True
        for number in list(self._wanted):
            self.hear(AdviceReply(number, None, None))

    def _want(self, authority: Authority, endpoints: Sequence[Endpoint]) -> "asyncio.Future[AdviceReply]":
        self._number += 1
        loop = asyncio.get_running_loop()
        flight: asyncio.Future[AdviceReply] = loop.create_future()
        no_answer = AdviceReply(self._number, None, _packed(Refusal("internal", "the parent process did not answer")))
        timer = loop.call_later(self._timeout, self.hear, no_answer)
        self._wanted[self._number] = _Question(authority.origin, flight, timer)
        self._pending[authority.origin] = flight
        if self._is_closed:
            self.hear(AdviceReply(self._number, None, None))
        else:
            listed = tuple((endpoint.host, endpoint.port) for endpoint in endpoints)
            self._send(AdviceQuery(self._number, str(authority), listed))
        return flight


def _packed(refusal: Refusal) -> _Why:
    nearer = next((nearer for nearer, answer in SPECIFIC_ERRORS.items() if answer is refusal.rule), None)
    return _Why(refusal.reason, refusal.detail, nearer)


def _unpacked(why: _Why) -> Refusal:
    return Refusal(why.reason, why.why, error_type=why.nearer)
