"""One prefetch proxy in one process: decision, tunnel server and log built together, reloaded and drained.

It is a proxy of its own, or one worker of several.
"""

import asyncio
import gc
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from socket import socket

import msgspec

from headgate.config.proxy import Proxy
from headgate.proxy.admission.decide import Admission, AdviceSource, ProxyPolicy
from headgate.proxy.admission.redis_replay_store import RedisReplayStore
from headgate.proxy.admission.replay_store import ReplayStore, TokenCheck
from headgate.proxy.admission.shared_replay_store import SharedReplayStore
from headgate.proxy.admission.tunnel_slots import TunnelSlots
from headgate.proxy.log import DecisionLog, LogWriter
from headgate.proxy.net.dns import SystemLookup
from headgate.proxy.server import TunnelServer
from headgate.runtime.prefetch_proxy.build import (
    clients_of,
    hosts_of,
    keys_of,
    limits_of,
    listener_context,
    pages_of,
    resolver_of,
    upgrades_of,
)
from headgate.runtime.prefetch_proxy.messages import SharedResources, WorkerState

__all__ = ["ProxyProcess"]


class ProxyProcess:
    """The decision on CONNECT requests and the tunnels. Raises `ConfigurationError` for invalid settings."""

    def __init__(self, settings: Proxy, shared: SharedResources, advising: AdviceSource, lines: LogWriter) -> None:
        self._settings = settings
        self._shared = shared
        self._lines = lines
        self._closing = AsyncExitStack()
        self._cut = 0
        # Kept to the end of the process: decisions that are cancelled at the end release their slots later.
        self._places = TunnelSlots(settings.max_tunnels, shared.places, worker=shared.worker)
        self._tokens = self._new_tokens()
        self._decision = Admission(
            ProxyPolicy(key=shared.key, unreachable=settings.unreachable, limits=limits_of(settings)),
            tokens=self._tokens,
            clients=clients_of(settings),
            places=self._places,
            hosts=hosts_of(settings),
            resolver=resolver_of(settings, SystemLookup(), shared.listeners),
            advising=advising,
            log=DecisionLog(lines, tunnels=settings.log == "all", clients=settings.log_client),
            seconds_left=lambda: self._server.seconds_left,
            connect=lambda *what: self._server.connector.connect(*what),  # noqa: PLW0108 - the server is made later
        )
        self._server = TunnelServer(
            self._decision.decide,
            self._decision.refuse_early,
            connections=settings.max_connections,
            client_connections=settings.client_connections,
            protocols=upgrades_of(settings),
            pages=pages_of(settings),
        )

    async def start(self, *, sockets: Sequence[socket] = (), addresses: Sequence[tuple[str, int]] = ()) -> None:
        """Accept clients on listening sockets, or at addresses that are shared with other processes."""
        tls = self._new_context()
        for sock in sockets:
            await self._server.start("", 0, tls=tls, sock=sock)
        for host, port in addresses:
            await self._server.start(host, port, tls=tls, reuse_port=True)
        # The objects built so far stay: the garbage collector need not look at them again.
        gc.collect()
        gc.freeze()

    @property
    def state(self) -> WorkerState:
        """What was counted."""
        # The bytes of a tunnel are counted when it ends; those of open tunnels are added.
        counts, (received, sent) = self._decision.counts, self._server.bytes_passed
        counts = msgspec.structs.replace(counts, received=counts.received + received, sent=counts.sent + sent)
        return WorkerState(counts, self._lines.dropped, self._cut)

    def reload(self) -> None:
        """Read certificate, token keys and published pages again. Raises, and changes nothing, for invalid files."""
        tls, keys, pages = self._new_context(), keys_of(self._settings), pages_of(self._settings)
        if tls is not None:
            self._server.replace_tls(tls)
        if self._tokens is not None:
            self._tokens.renew(keys)
        self._server.pages = pages

    async def drain(self, seconds: float) -> int:
        """Accept no more clients, and give open tunnels `seconds` to end; returns how many had to be cut in all.

        A second call, while the first one waits, has it wait no longer.
        """
        self._cut = await self._server.drain(seconds, others_have_tunnels=lambda: self._places.taken > 0)
        await asyncio.sleep(0)  # decisions under way are cancelled in this turn
        await self._closing.aclose()
        return self._cut

    def _new_context(self) -> ssl.SSLContext | None:
        files = self._shared.files
        return None if files is None else listener_context(self._settings, *files)

    def _new_tokens(self) -> TokenCheck | None:
        keys = keys_of(self._settings)
        if not keys:
            return None
        store, table = self._settings.token_store, self._shared.tokens
        once: ReplayStore = RedisReplayStore(store) if table is None else SharedReplayStore(table)
        tokens = TokenCheck(keys, once)
        self._closing.push_async_callback(tokens.close)
        return tokens
