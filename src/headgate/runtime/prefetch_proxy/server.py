"""The prefetch proxy as a server: log, certificate, advice, admin listener, and one process or several workers."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Protocol, TypeAlias

from headgate.config import Address
from headgate.config.proxy import Proxy
from headgate.proxy.admission.advice_service import AdviceService
from headgate.proxy.counters import Counts, merged
from headgate.proxy.log import LogWriter, TrafficSummary
from headgate.runtime.admin_server import AdminServer
from headgate.runtime.lifecycle import Server, run_server
from headgate.runtime.listen import listen_error
from headgate.runtime.prefetch_proxy.build import check_proxy, trust_of
from headgate.runtime.prefetch_proxy.messages import WorkerState
from headgate.runtime.prefetch_proxy.metrics import proxy_metrics
from headgate.runtime.prefetch_proxy.resources import ProxyResources, certificate_files, open_log
from headgate.runtime.prefetch_proxy.single import SingleProxy
from headgate.runtime.prefetch_proxy.state import ProxyState, state_to_json
from headgate.runtime.prefetch_proxy.workers import ProxyWorkers

__all__ = ["ReadProxy", "run_proxy"]

ReadProxy: TypeAlias = Callable[[], tuple[Proxy, str | None]]
"""Reads the table [proxy], at the start and at each reload; also returns the name of its file, if there is one."""

_SUMMARY_INTERVAL: Final = 60.0
_SELF_SIGNED: Final = "self-signed certificate, for trying it out: tell clients to accept it (curl --proxy-insecure)"
_RELOADED: Final = "the certificate, the token keys and the geofeed read again"


def run_proxy(read: ReadProxy) -> int:
    """Run a prefetch proxy until a signal stops it; returns the exit code."""
    settings, _ = read()
    return run_server(_ProxyServer(read, settings), loop=settings.loop)


class _Backend(Protocol):
    """What accepts clients: this process, or its workers."""

    async def start(self) -> int:
        """Start; returns the port that it listens at."""

    def unready(self) -> str:
        """Return why no client is accepted although it has started; empty when they are."""

    async def states(self) -> list[WorkerState]:
        """Return the states of all processes that accept clients, or have done so."""

    def reload(self) -> None:
        """Read the files again. Raises `HeadgateError`, and changes nothing, for invalid ones."""

    async def drain(self, seconds: float) -> int:
        """Accept no more clients, and wait for open tunnels; returns how many had to be cut."""

    async def close(self) -> None:
        """Release everything."""


class _ProxyServer(Server):
    """A prefetch proxy in its life-cycle."""

    def __init__(self, read: ReadProxy, settings: Proxy) -> None:
        self._read = read
        self._settings = settings
        self._address = Address.parse(self._settings.listen)
        self._closing = AsyncExitStack()
        self._lines: LogWriter | None = None
        self._counts = Counts()
        self._summary = TrafficSummary(now=time.time())
        self._summarizing: asyncio.Task[None] | None = None
        self._advising: AdviceService | None = None
        self._admin: AdminServer[ProxyState] | None = None
        self._backend: _Backend | None = None
        self._unready: Callable[[], str] = lambda: "starting"
        self._cut = 0

    @property
    def drain_timeout(self) -> float:
        return self._settings.drain

    async def start(self, unready: Callable[[], str], fail: Callable[[BaseException], None]) -> None:  # noqa: ARG002  # nothing of a proxy fails by itself
        settings = self._settings
        check_proxy(settings)
        self._unready = unready
        lines = self._lines = self._closing.enter_context(open_log())
        files = self._closing.enter_context(certificate_files(settings, self._address.host))
        advising = self._advising = AdviceService(
            settings.brand, tls=trust_of(settings), counts=self._counts, unreachable_for=settings.unreachable_hold
        )
        self._closing.callback(advising.close)
        admin = self._admin = AdminServer(self._state, unready, proxy_metrics, to_json=state_to_json)
        if settings.admin:
            await self._start_admin(admin, Address.parse(settings.admin))
        resources = ProxyResources(settings, files, admin.addresses, advising, lines)
        backend = SingleProxy(resources) if settings.workers == 1 else ProxyWorkers(resources)
        self._backend = backend
        self._closing.push_async_callback(backend.close)
        self._address = self._address._replace(port=await backend.start())
        self._summarizing = asyncio.get_running_loop().create_task(self._log_summaries())

    async def _start_admin(self, admin: AdminServer[ProxyState], address: Address) -> None:
        try:
            await admin.start(address)
        except OSError as error:
            raise listen_error("--admin", address, error) from None
        self._closing.push_async_callback(admin.close)

    def announce(self) -> None:
        settings = self._settings
        admin = self._admin.url if self._admin is not None else "none"
        if settings.self_signed:
            self.log(f"headgate: {_SELF_SIGNED}")
        self.log(f"headgate: brand {_word(settings.brand)} workers {settings.workers} admin {admin}")
        # Scripts take the address from this line, so it has nothing else.
        self.log(f"ready {'http' if settings.plaintext else 'https'}://{self._address}")

    def unready(self) -> str:
        return self._backend.unready() if self._backend is not None else "starting"

    async def reload(self) -> None:
        assert self._backend is not None, "a reload follows the start"
        old, (new, _) = self._settings, self._read()
        self._backend.reload()
        changed = [f"proxy.{name}" for name in old.__struct_fields__ if getattr(new, name) != getattr(old, name)]
        rest = f"; a restart is needed for {', '.join(changed)}" if changed else ""
        self.log(f"headgate: {_RELOADED}{rest}")

    async def drain(self, seconds: float) -> None:
        if self._backend is not None:
            self._cut = await self._backend.drain(seconds)

    async def close(self) -> None:
        if self._summarizing is not None:
            self._summarizing.cancel()
            await asyncio.gather(self._summarizing, return_exceptions=True)
            await self._log_summary()
        if self._cut:
            are_cut = "tunnel had not ended and was cut" if self._cut == 1 else "tunnels had not ended and were cut"
            self.log(f"headgate: {self._cut} {are_cut}")
        await self._closing.aclose()

    def log(self, message: str) -> None:
        if self._lines is not None:
            self._lines.say(message)
        else:
            super().log(message)

    async def _log_summaries(self) -> None:
        while True:
            await asyncio.sleep(_SUMMARY_INTERVAL)
            await self._log_summary()

    async def _log_summary(self) -> None:
        """Log how many tunnels were opened since the last summary, unless each tunnel is logged."""
        if self._settings.log == "refusals" and self._lines is not None:
            line = self._summary.line((await self._state()).counts, now=time.time())
            if line is not None:
                self._lines.write(line)

    async def _state(self, *, whole: bool = False) -> ProxyState:
        """Return the state; what is known of origins only if `whole`."""
        states = [] if self._backend is None else await self._backend.states()
        counts, now = merged([self._counts, *(one.counts for one in states)]), time.time()
        known = {}
        if whole and self._advising is not None:
            known = {origin: self._advising.known(origin, now=now) for origin in counts.origins}
        return ProxyState(
            counts,
            {origin: advice for origin, advice in known.items() if advice is not None},
            now,
            dropped=sum(one.dropped for one in states),
            draining=self._unready() == "draining",
        )


def _word(text: str) -> str:
    """Return a text without spaces and without characters that change a terminal, for a line of words."""
    return "-".join("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text).split())
