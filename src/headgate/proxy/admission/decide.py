"""What becomes of a CONNECT: how often, who asks, is there room, where to, does the origin want it, can it be reached.

In this order, each answer with its own reason, counted and logged. What costs the least is asked first, and nothing is
looked up, fetched or dialled for whom an earlier question refuses.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from headgate.advice.answer import Advice
from headgate.advice.draw import permits, sticky_draw
from headgate.advice.result import UNREACHABLE
from headgate.proxy.admission.authority import Authority, parse_authority
from headgate.proxy.admission.clients import Clients, client_of
from headgate.proxy.admission.hosts import HostRules
from headgate.proxy.admission.replay_store import TokenCheck
from headgate.proxy.admission.resolver import Resolver
from headgate.proxy.admission.tunnel_slots import Places
from headgate.proxy.connect import Asked, Complaint, Ending, Limits, Opened, Refused
from headgate.proxy.counters import ACCEPTED, Counts
from headgate.proxy.net.dial import CONNECT_TIMEOUT, Connect, dial
from headgate.proxy.net.endpoint import Endpoint
from headgate.proxy.refusal import DEFAULT_PAUSE, Refusal
from headgate.token import Valid
from headgate.token.checking import bearer_token

__all__ = ["Advising", "Decision", "Log", "Manners"]


class Advising(Protocol):
    """Who knows what origins advise; one for all workers."""

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Give the fresh advice of a serialised origin, where it is known here."""

    async def advice(self, authority: Authority, endpoints: Sequence[Endpoint]) -> tuple[Advice, Refusal | None]:
        """Give the advice, asked for at these addresses if it has to be; and why none of them could be dialled then."""

    def flight(self, origin: str) -> asyncio.Future[Any] | None:
        """Give what is done when a serialised origin has been asked, where that is under way: whoever waits may go."""


class Log(Protocol):
    """Where decisions are written down."""

    def refused(self, asked: Asked, authority: Authority | None, refusal: Refusal) -> None:
        """Write down a CONNECT that was refused."""

    def closed(
        self, peer: tuple[str, int], authority: Authority, received: int, sent: int, why: Ending, *, seconds: float
    ) -> None:
        """Write down a tunnel of the client at that address that is over, and was open for so many seconds."""


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """How the proxy treats origins and tunnels."""

    key: bytes
    """What the sticky draws are made with: random, and one for all workers."""
    unreachable: Literal["hold", "permit"] = "hold"
    """What an origin gets that could not say what it advises."""
    limits: Limits = Limits()
    """What a tunnel may take."""
    connect_timeout: float = CONNECT_TIMEOUT
    """Seconds that dialling may take."""


class Decision:
    """Decides on CONNECTs; its `decide` and `complain` are for a `TunnelServer`."""

    def __init__(
        self,
        manners: Manners,
        *,
        tokens: TokenCheck | None,
        clients: Clients,
        places: Places,
        hosts: HostRules,
        resolver: Resolver,
        advising: Advising,
        log: Log,
        seconds_left: Callable[[], float] = lambda: DEFAULT_PAUSE,
        connect: Connect | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = Counts()
        """What was counted so far."""
        self._manners = manners
        self._tokens = tokens
        self._clients = clients
        self._places = places
        self._hosts = hosts
        self._resolver = resolver
        self._advising = advising
        self._log = log
        self._seconds_left = seconds_left
        self._connect = connect
        self._clock = clock
        self._steady = steady  # for what is between two instants, whatever becomes of the clock that tells the time

    async def decide(self, asked: Asked) -> Opened | Refused:
        """Decide on a CONNECT; see `Decide`."""
        self.counts.connect_request_bytes += asked.head_bytes
        authority = parse_authority(asked.authority)
        try:
            if authority is None:
                raise Refusal("malformed", "it names no host and port")
            return await self._decide(asked, authority)
        except Refusal as refusal:
            self._note(asked, authority, refusal)
            return refusal.refused

    def complain(self, reason: Complaint, peer: tuple[str, int]) -> Refused:
        """Refuse what is not decided on; see `Complain`."""
        refusal = Refusal(reason, "only CONNECT is served" if reason == "method" else "")
        self._note(Asked(authority="", peer=peer), None, refusal)
        return refusal.refused

    def _note(self, asked: Asked, authority: Authority | None, refusal: Refusal) -> None:
        self.counts.connected(None if authority is None else authority.origin, refusal.reason)
        self._log.refused(asked, authority, refusal)

    async def _decide(self, asked: Asked, authority: Authority) -> Opened:
        if asked.draining:
            raise Refusal("draining", pause=self._seconds_left())
        client = client_of(asked.peer[0])
        # Before the token: a dictionary is cheaper than a signature, or than the question to Redis.
        self._clients.admit(client, now=self._steady())
        # Whatever comes between, the cancelling of this included, gives back what was taken.
        try:
            await self._check_token(asked, authority)
            if not await self._places.take():
                raise Refusal("tunnels")
        except BaseException:
            self._clients.leave(client)
            raise
        try:
            sock = await self._reach(client, authority)
        except BaseException as error:
            self._give_back(client, authority, error)
            raise
        self.counts.connected(authority.origin, ACCEPTED)
        self.counts.tunnels += 1
        tunnel = _Tunnel(self, asked.peer, authority, client, began=self._steady())
        return Opened(socket=sock, closed=tunnel.closed, limits=self._manners.limits)

    def over(self, tunnel: "_Tunnel", received: int, sent: int, why: Ending) -> None:
        """Take back what a tunnel had, count it and write it down."""
        self._places.leave()
        self._clients.leave(tunnel.client)
        self.counts.tunnels -= 1
        self.counts.received += received
        self.counts.sent += sent
        seconds = self._steady() - tunnel.began
        self._log.closed(tunnel.peer, tunnel.authority, received, sent, why, seconds=seconds)

    def _give_back(self, client: bytes, authority: Authority, error: BaseException) -> None:
        """Take back what a client had that is refused or gone.

        Its place at once, which other clients wait for. But a question for advice that goes on still counts as one of
        the client's tunnels: a client that comes and goes would have origins asked without bound.
        """
        self._places.leave()
        question = self._advising.flight(authority.origin) if isinstance(error, asyncio.CancelledError) else None
        if question is None:
            self._clients.leave(client)
        else:
            question.add_done_callback(lambda _: self._clients.leave(client))

    async def _check_token(self, asked: Asked, authority: Authority) -> None:
        if self._tokens is None:
            return
        shown = [value for name, value in asked.fields if name == "proxy-authorization"]
        if len(shown) > 1:
            raise Refusal("token_invalid", "it is shown more than once")
        token = bearer_token(shown[0]) if shown else None
        verdict = await self._tokens.check(token, now=self._clock(), origin=authority.origin)
        if not isinstance(verdict, Valid):
            raise Refusal(verdict)

    async def _reach(self, client: bytes, authority: Authority) -> socket.socket:
        """Connect to where the authority is, if it may be and wants it."""
        refusal = self._hosts.refusal(authority)
        if refusal is not None:
            raise refusal
        if authority.address is None:
            # What refuses anyway needs no name server; what an address is, costs nothing to find out first.
            known = self._advising.known(authority.origin, now=self._clock())
            if known is not None:
                self._obey(known, client, authority)
        endpoints = await self._resolver.resolve(authority, client)
        advice, undialled = await self._advising.advice(authority, endpoints)
        if undialled is not None and self._manners.unreachable == "hold":
            # Who asked the origin in vain is told what happened; who comes later, that it is held.
            raise undialled
        self._obey(advice, client, authority)
        return await dial(endpoints, seconds=self._manners.connect_timeout, connect=self._connect)

    def _obey(self, advice: Advice, client: bytes, authority: Authority) -> None:
        """Refuse what the advice does not permit (traffic-advice.txt, section 7)."""
        if advice.result is UNREACHABLE and self._manners.unreachable == "hold":
            raise Refusal("advice_unreachable", advice.reason)
        entry = advice.entry
        if entry is None:
            return
        if entry.disallowed:
            raise Refusal("advice_disallowed")
        # The same client gets the same draw for ten minutes: asking again changes nothing, and lasts not for ever.
        draw = sticky_draw(self._manners.key, client, authority.origin, now=self._clock())
        if not permits(entry, draw):
            raise Refusal("advice_fraction", f"a fraction of {entry.fraction:g} is wanted")


class _Tunnel:
    """What is to be known when a tunnel is over: little, for there are thousands, and no token shown for it."""

    __slots__ = ("_decision", "authority", "began", "client", "peer")

    def __init__(
        self, decision: Decision, peer: tuple[str, int], authority: Authority, client: bytes, *, began: float
    ) -> None:
        self._decision = decision
        self.peer = peer
        self.authority = authority
        self.client = client
        self.began = began

    def closed(self, received: int, sent: int, why: Ending) -> None:
        """See `Opened`."""
        self._decision.over(self, received, sent, why)
