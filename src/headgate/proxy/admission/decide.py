"""Deciding on a CONNECT request: the client's limits, its token, a free slot, the host, its addresses, the advice.

The questions are asked in this order, cheap ones first, and each refusal has its own reason, counted and logged.
Nothing is looked up, fetched or connected to for a request that an earlier question refuses.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Protocol

import msgspec

from headgate.advice.decision import Advice, permits, sticky_draw
from headgate.advice.parser import UNREACHABLE
from headgate.proxy.admission.authority import Authority, HostRules, parse_authority
from headgate.proxy.admission.destinations import Resolver
from headgate.proxy.admission.limits import Clients, TunnelSlots, client_of
from headgate.proxy.admission.tokens import TokenCheck
from headgate.proxy.connect import (
    DEFAULT_IDLE,
    AcceptedConnect,
    CloseReason,
    ConnectRequest,
    EarlyReason,
    RefusedConnect,
)
from headgate.proxy.counters import ACCEPTED, Counts
from headgate.proxy.dial import CONNECT_TIMEOUT, Connect, dial
from headgate.proxy.log import DecisionLog
from headgate.proxy.refusal import DEFAULT_RETRY_AFTER, Refusal
from headgate.proxy.sockets import Endpoint
from headgate.token import ValidToken
from headgate.token.signed_token import bearer_token


class AdviceSource(Protocol):
    """Knows the advice of origins; one for all workers."""

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Return the fresh advice of a serialised origin, if it is known here."""

    async def advice(self, authority: Authority, endpoints: Sequence[Endpoint]) -> tuple[Advice, Refusal | None]:
        """Return the advice, fetched from these addresses if needed, and why none of them could be connected to."""

    def pending_fetch(self, origin: str) -> asyncio.Future[Any] | None:
        """Return what completes with the pending fetch of a serialised origin, if there is one."""


class ProxyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How the proxy treats origins and tunnels."""

    key: bytes
    """Secret key of the draws: random, and the same in all workers."""
    unreachable: Literal["hold", "permit"] = "hold"
    """Whether to refuse origins whose advice could not be fetched, or to let requests through."""
    idle: float = DEFAULT_IDLE
    """Seconds without a byte until a tunnel is closed."""
    connect_timeout: float = CONNECT_TIMEOUT
    """Seconds to connect to a target."""


class Admission:
    """Decides on CONNECT requests; its `decide` and `refuse_early` are for a `TunnelServer`."""

    def __init__(
        self,
        policy: ProxyPolicy,
        *,
        tokens: TokenCheck | None,
        clients: Clients,
        slots: TunnelSlots,
        hosts: HostRules,
        resolver: Resolver,
        advice: AdviceSource,
        log: DecisionLog,
        seconds_left: Callable[[], float] = lambda: DEFAULT_RETRY_AFTER,
        connect: Connect | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = Counts()
        """What was counted since the start."""
        self._policy = policy
        self._tokens = tokens
        self._clients = clients
        self._slots = slots
        self._hosts = hosts
        self._resolver = resolver
        self._advice = advice
        self._log = log
        self._seconds_left = seconds_left
        self._connect = connect
        self._clock = clock
        self._steady = steady  # for durations: it is never set

    async def decide(self, request: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        """Decide on a request; see `Decide`."""
        self.counts.connect_request_bytes += request.head_bytes
        authority = parse_authority(request.authority)
        try:
            if authority is None:
                raise Refusal("malformed", "the target is not HOST:PORT")
            return await self._decide(request, authority)
        except Refusal as refusal:
            self._count_refusal(request, authority, refusal)
            return refusal.refused

    def refuse_early(self, reason: EarlyReason, peer: tuple[str, int]) -> RefusedConnect:
        """Refuse without a decision; see `RefuseEarly`."""
        refusal = Refusal(reason, "only CONNECT is served" if reason == "method" else "")
        self._count_refusal(ConnectRequest(authority="", peer=peer), None, refusal)
        return refusal.refused

    def _count_refusal(self, request: ConnectRequest, authority: Authority | None, refusal: Refusal) -> None:
        origin = None if authority is None else authority.origin
        self.counts.connected(origin, refusal.reason)
        self._log.refused(request, origin, refusal)

    async def _decide(self, request: ConnectRequest, authority: Authority) -> AcceptedConnect:
        if request.draining:
            raise Refusal("draining", retry_after=self._seconds_left())
        client = client_of(request.peer[0])
        # Before the token: a dictionary lookup is cheaper than verifying a signature.
        self._clients.admit(client, now=self._steady())
        # Every failure from here on, a cancellation included, gives back what was taken.
        try:
            await self._check_token(request, authority)
            if not await self._slots.take():
                raise Refusal("tunnels")
        except BaseException:
            self._clients.leave(client)
            raise
        try:
            sock = await self._reach(client, authority)
        except BaseException as error:
            self._release(client, authority, error)
            raise
        self.counts.connected(authority.origin, ACCEPTED)
        self.counts.tunnels += 1
        return AcceptedConnect(socket=sock, on_closed=partial(self._closed, client), idle=self._policy.idle)

    def _closed(self, client: bytes, received: int, sent: int, _reason: CloseReason) -> None:
        """Release what a tunnel held, and count its bytes; see `AcceptedConnect.on_closed`."""
        self._slots.release()
        self._clients.leave(client)
        self.counts.tunnels -= 1
        self.counts.received += received
        self.counts.sent += sent

    def _release(self, client: bytes, authority: Authority, error: BaseException) -> None:
        """Release what a refused or cancelled request held.

        Its slot at once, since other clients wait for it. But a fetch of advice that goes on still counts as one of the
        client's tunnels: else a client that connects and leaves could cause any number of fetches.
        """
        self._slots.release()
        fetch = self._advice.pending_fetch(authority.origin) if isinstance(error, asyncio.CancelledError) else None
        if fetch is None:
            self._clients.leave(client)
        else:
            fetch.add_done_callback(lambda _: self._clients.leave(client))

    async def _check_token(self, request: ConnectRequest, authority: Authority) -> None:
        if self._tokens is None:
            return
        tokens = [value for name, value in request.fields if name == "proxy-authorization"]
        if len(tokens) > 1:
            raise Refusal("token_invalid", "there is more than one Proxy-Authorization")
        token = bearer_token(tokens[0]) if tokens else None
        outcome = await self._tokens.check(token, now=self._clock(), origin=authority.origin)
        if not isinstance(outcome, ValidToken):
            raise Refusal(outcome)

    async def _reach(self, client: bytes, authority: Authority) -> socket.socket:
        """Connect to the target, if rules, addresses and advice allow it."""
        refusal = self._hosts.refusal(authority)
        if refusal is not None:
            raise refusal
        if authority.address is None:
            # Known advice that refuses saves the name lookup; an address needs none.
            known = self._advice.known(authority.origin, now=self._clock())
            if known is not None:
                self._check_advice(known, client, authority)
        endpoints = await self._resolver.resolve(authority, client)
        advice, unreachable_reason = await self._advice.advice(authority, endpoints)
        if unreachable_reason is not None and self._policy.unreachable == "hold":
            # This request learns what happened; later ones are refused with "advice_unreachable".
            raise unreachable_reason
        self._check_advice(advice, client, authority)
        return await dial(endpoints, seconds=self._policy.connect_timeout, connect=self._connect)

    def _check_advice(self, advice: Advice, client: bytes, authority: Authority) -> None:
        """Raise `Refusal` if the advice does not permit the request (traffic-advice.txt, section 7)."""
        if advice.result is UNREACHABLE and self._policy.unreachable == "hold":
            raise Refusal("advice_unreachable", advice.reason)
        entry = advice.entry
        if entry is None:
            return
        if entry.disallowed:
            raise Refusal("advice_disallowed")
        # A client keeps its draw for ten minutes: a retry gains nothing, and no client is refused for ever.
        draw = sticky_draw(self._policy.key, client, authority.origin, now=self._clock())
        if not permits(entry, draw):
            raise Refusal(
                "advice_fraction", f"the origin admits a fraction of {entry.fraction:g}; this client was not selected"
            )
