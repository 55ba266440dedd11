"""One process of a prefetch proxy: decision, tunnel server and log built together, reloaded and drained.

It is a proxy of its own, or one worker of several: then this is the main module of the process.
"""

import asyncio
import gc
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from headgate.config import Address
from headgate.config.proxy_section import Proxy
from headgate.proxy.admission.decide import Admission, AdviceSource, ProxyPolicy
from headgate.proxy.admission.limits import TunnelSlots
from headgate.proxy.admission.remote_advice import AdviceQuery, AdviceReply, RemoteAdvice
from headgate.proxy.admission.tokens import TokenCheck
from headgate.proxy.counters import Counts
from headgate.proxy.dns import SystemLookup
from headgate.proxy.log import DecisionLog, LogWriter
from headgate.proxy.server import TunnelServer
from headgate.proxy.sockets import server_context
from headgate.runtime.ipc import Configure, Ready, Shutdown, StartFailed, StateQuery, StateReport
from headgate.runtime.lifecycle import Backend
from headgate.runtime.listen import listen_error
from headgate.runtime.prefetch_proxy.build import (
    build_clients,
    build_host_rules,
    build_resolver,
    read_token_keys,
)
from headgate.runtime.worker_main import Send, run_worker


class ProxyConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one process of a proxy. All but `worker` is the same for all of them."""

    settings: Proxy
    addresses: tuple[Address, ...]
    """Numeric addresses to listen at; reserved, and shared with other processes."""
    admin: tuple[Address, ...]
    """Numeric addresses of the admin listener."""
    files: tuple[str, str] | None
    """The certificate and its key; None in plaintext."""
    key: bytes
    """The key of the draws that stay the same for a client and an origin."""
    slots: int
    """Descriptor of the table of open tunnels, owned by the process that gets it."""
    tokens: int | None
    """Descriptor of the table of used tokens, likewise; None without tokens."""
    worker: int = 0
    """The number of the worker, from 0."""


class WorkerState(msgspec.Struct, frozen=True):
    """The state of one process that accepts connections, or the sum of several."""

    counts: Counts
    """What it has counted; without advice fetches, where another process fetches advice."""
    dropped: int = 0
    """Log lines dropped."""
    cut: int = 0
    """Tunnels closed at its end before they had ended."""


FromSupervisor = Configure[ProxyConfiguration] | StateQuery | Shutdown | AdviceReply
FromWorker = Ready | StartFailed | StateReport[WorkerState] | AdviceQuery


class ProxyProcess(Backend):
    """The decision on CONNECT requests and the tunnels. Raises `ConfigurationError` for invalid settings."""

    def __init__(self, configuration: ProxyConfiguration, advice: AdviceSource, log: LogWriter) -> None:
        settings = configuration.settings
        self._configuration = configuration
        self._log = log
        self._closing = ExitStack()
        self._cut = 0
        # Kept to the end of the process: decisions that are cancelled at the end release their slots later.
        self._slots = TunnelSlots(settings.max_tunnels, configuration.slots, worker=configuration.worker)
        self._tokens = self._new_tokens()
        self._decision = Admission(
            ProxyPolicy(key=configuration.key, unreachable=settings.unreachable, idle=settings.idle),
            tokens=self._tokens,
            clients=build_clients(settings),
            slots=self._slots,
            hosts=build_host_rules(settings),
            resolver=build_resolver(settings, SystemLookup(), (*configuration.addresses, *configuration.admin)),
            advice=advice,
            log=DecisionLog(log, clients=settings.log_client),
            seconds_left=lambda: self._server.seconds_left,
            connect=lambda *what: self._server.connector.connect(*what),  # noqa: PLW0108 - the server is made later
        )
        self._server = TunnelServer(
            self._decision.decide,
            self._decision.refuse_early,
            connections=settings.max_connections,
            client_connections=settings.client_connections,
        )

    @property
    def drain_timeout(self) -> float:
        return self._configuration.settings.drain

    async def start(self) -> None:
        tls = self._new_context()
        for address in self._configuration.addresses:
            try:
                await self._server.start(*address, tls=tls, reuse_port=True)
            except OSError as error:
                raise listen_error("--listen", address, error) from None
        # The objects built so far stay: the garbage collector need not look at them again.
        gc.collect()
        gc.freeze()

    async def state(self, *, whole: bool) -> WorkerState:  # noqa: ARG002  # nothing of it takes long
        """Return what was counted."""
        # The bytes of a tunnel are counted when it ends; those of open tunnels are added.
        counts, (received, sent) = self._decision.counts, self._server.bytes_passed
        counts = msgspec.structs.replace(counts, received=counts.received + received, sent=counts.sent + sent)
        return WorkerState(counts, self._log.dropped, self._cut)

    async def reload(self, configuration: object) -> None:  # noqa: ARG002  # only files are read again
        """Read certificate and token keys again."""
        tls, keys = self._new_context(), read_token_keys(self._configuration.settings)
        if tls is not None:
            self._server.replace_tls(tls)
        if self._tokens is not None:
            self._tokens.replace_keys(keys)

    async def drain(self, seconds: float) -> None:
        self._cut = await self._server.drain(seconds, others_have_tunnels=lambda: self._slots.taken > 0)
        await asyncio.sleep(0)  # decisions under way are cancelled in this turn

    async def close(self) -> None:
        await self.drain(0)
        self._closing.close()

    def log(self, message: str) -> None:
        self._log.say(message)

    def _new_context(self) -> ssl.SSLContext | None:
        files = self._configuration.files
        return None if files is None else server_context(*files)

    def _new_tokens(self) -> TokenCheck | None:
        keys = read_token_keys(self._configuration.settings)
        if self._configuration.tokens is None:
            return None
        tokens = TokenCheck(keys, self._configuration.tokens)
        self._closing.callback(tokens.close)
        return tokens


@contextmanager
def open_log() -> Iterator[LogWriter]:
    """Give the log while inside, with exceptions of the event loop written to it. Logging never waits for stderr."""
    log = LogWriter()

    def log_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        log.say(f"headgate: internal error: {context.get('message')}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(log_exception)
    try:
        yield log
    finally:
        log.close()


def main() -> int:
    """Run a proxy until its supervisor, or a SIGTERM, stops it."""
    with ExitStack() as closing:
        return run_worker(FromSupervisor, lambda configuration, send: _ProxyWorker(configuration, send, closing))


class _ProxyWorker(ProxyProcess):
    """One proxy of several, which gets advice from the supervisor."""

    def __init__(self, configuration: ProxyConfiguration, send: Send, closing: ExitStack) -> None:
        self._remote_advice = RemoteAdvice(send)
        super().__init__(configuration, self._remote_advice, closing.enter_context(open_log()))

    def on_message(self, message: Any) -> None:
        if isinstance(message, AdviceReply):
            self._remote_advice.receive(message)
        else:
            self._remote_advice.close()


if __name__ == "__main__":
    sys.exit(main())
