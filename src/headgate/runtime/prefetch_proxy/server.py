"""The prefetch proxy as a server: log, certificate, advice, admin listener, and one process or several workers."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final, TypeAlias

from headgate.config import Address
from headgate.config.proxy import Proxy
from headgate.errors import ConfigurationError
from headgate.proxy.admission.advice_service import AdviceService
from headgate.proxy.admission.replay_store import create_replay_table
from headgate.proxy.admission.tunnel_slots import create_slots
from headgate.proxy.counters import Counts, merged
from headgate.proxy.log import TrafficSummary
from headgate.runtime.admin_server import start_admin
from headgate.runtime.lifecycle import Lifecycle, Server, run_server
from headgate.runtime.listen import reserve_addresses
from headgate.runtime.prefetch_proxy.build import advice_tls_context, check_proxy
from headgate.runtime.prefetch_proxy.certificate import self_signed
from headgate.runtime.prefetch_proxy.log_setup import open_log
from headgate.runtime.prefetch_proxy.messages import ProxyConfiguration
from headgate.runtime.prefetch_proxy.metrics import proxy_metrics
from headgate.runtime.prefetch_proxy.process import ProxyProcess
from headgate.runtime.prefetch_proxy.state import ProxyState, state_to_json
from headgate.runtime.prefetch_proxy.workers import ProxyWorkers

ReadProxy: TypeAlias = Callable[[], tuple[Proxy, str | None]]
"""Reads the table [proxy], at the start and at each reload; also returns the name of its file, if there is one."""

_SUMMARY_INTERVAL: Final = 60.0
_DRAW_KEY_SIZE: Final = 32
_SELF_SIGNED: Final = "self-signed certificate, for trying it out: tell clients to accept it (curl --proxy-insecure)"
_RELOADED: Final = "the certificate, the token keys and the geofeed read again"


def run_proxy(read: ReadProxy) -> int:
    """Run a prefetch proxy until a signal stops it; returns the exit code."""
    settings, _ = read()
    return run_server(_ProxyServer(read, settings), loop=settings.loop)


class _ProxyServer(Server):
    """A prefetch proxy in its life-cycle."""

    def __init__(self, read: ReadProxy, settings: Proxy) -> None:
        super().__init__()
        self._read = read
        self._settings = settings
        self._address = Address.parse(settings.listen)
        self._admin: Sequence[Address] = ()
        self._counts = Counts()
        self._summary = TrafficSummary(now=time.time())
        self._summarizing: asyncio.Task[None] | None = None

    async def start(self, lifecycle: Lifecycle) -> None:
        settings = self._settings
        check_proxy(settings)
        self._lines = self.closing.enter_context(open_log())
        self.log = self._lines.say  # type: ignore[method-assign, assignment]  # from now on nothing waits for stderr
        self._advice = AdviceService(
            settings.brand,
            tls=advice_tls_context(settings),
            counts=self._counts,
            unreachable_for=settings.unreachable_hold,
        )
        self.closing.callback(self._advice.close)
        self._lifecycle = lifecycle
        if settings.admin:
            self._admin = await start_admin(
                Address.parse(settings.admin),
                self.closing,
                state=self._state,
                unready=lifecycle.unready,
                collect=proxy_metrics,
                to_json=state_to_json,
            )
        addresses = self.closing.enter_context(reserve_addresses("--listen", self._address))
        _require_loopback_for_plaintext(settings, addresses)
        self._address = self._address._replace(port=addresses[0].port)
        configuration = ProxyConfiguration(
            settings=settings,
            addresses=tuple(addresses),
            admin=tuple(self._admin),
            files=self._certificate_files(),
            key=os.urandom(_DRAW_KEY_SIZE),
            slots=create_slots(settings.workers),
            tokens=create_replay_table() if settings.token_keys and not settings.token_store else None,
        )
        backend = ProxyProcess if settings.workers == 1 else ProxyWorkers
        self.backend = backend(configuration, self._advice, self._lines)
        self.closing.push_async_callback(self.backend.close)
        await self.backend.start()
        self._summarizing = asyncio.get_running_loop().create_task(self._log_summaries())

    def _certificate_files(self) -> tuple[str, str] | None:
        """Return the files of the certificate and its key; None in plaintext."""
        settings = self._settings
        if settings.self_signed:
            return self.closing.enter_context(self_signed(self._address.host))
        return None if settings.plaintext else (settings.cert, settings.key)

    def announce(self) -> None:
        settings = self._settings
        admin = f"http://{self._admin[0]}" if self._admin else "none"
        if settings.self_signed:
            self.log(f"headgate: {_SELF_SIGNED}")
        self.log(f"headgate: brand {_word(settings.brand)} workers {settings.workers} admin {admin}")
        # Scripts take the address from this line, so it has nothing else.
        self.log(f"ready {'http' if settings.plaintext else 'https'}://{self._address}")

    async def reload(self) -> None:
        old, (new, _) = self._settings, self._read()
        await self.backend.reload(None)
        changed = [f"proxy.{name}" for name in old.__struct_fields__ if getattr(new, name) != getattr(old, name)]
        rest = f"; a restart is needed for {', '.join(changed)}" if changed else ""
        self.log(f"headgate: {_RELOADED}{rest}")

    async def close(self) -> None:
        if self._summarizing is not None:
            self._summarizing.cancel()
            await asyncio.gather(self._summarizing, return_exceptions=True)
            await self._log_summary()
            cut = (await self.backend.state(whole=False)).cut
            if cut:
                are_cut = "tunnel had not ended and was cut" if cut == 1 else "tunnels had not ended and were cut"
                self.log(f"headgate: {cut} {are_cut}")
        await super().close()

    async def _log_summaries(self) -> None:
        while True:
            await asyncio.sleep(_SUMMARY_INTERVAL)
            await self._log_summary()

    async def _log_summary(self) -> None:
        """Log how many tunnels were opened since the last summary, unless each tunnel is logged."""
        if self._settings.log == "refusals":
            line = self._summary.line((await self._state()).counts, now=time.time())
            if line is not None:
                self._lines.write(line)

    async def _state(self, *, whole: bool = False) -> ProxyState:
        """Return the state; what is known of origins only if `whole`."""
        draining = self._lifecycle.unready() == "draining"
        now = time.time()
        if self._summarizing is None:  # it has not started
            return ProxyState(Counts(), {}, now)
        state = await self.backend.state(whole=whole)
        counts = merged([self._counts, state.counts])
        known = {origin: self._advice.known(origin, now=now) for origin in counts.origins} if whole else {}
        advice = {origin: advice for origin, advice in known.items() if advice is not None}
        return ProxyState(counts, advice, now, dropped=state.dropped, draining=draining)


def _require_loopback_for_plaintext(settings: Proxy, addresses: Sequence[Address]) -> None:
    is_loopback = all(ip_address(address.host.partition("%")[0]).is_loopback for address in addresses)
    if settings.plaintext and not is_loopback and not settings.insecure:
        raise ConfigurationError(
            f"--plaintext at {settings.listen} would show CONNECT requests to others on the network; listen at "
            "127.0.0.1, use a certificate, or add --insecure where something before the proxy ends TLS"
        )


def _word(text: str) -> str:
    """Return a text without spaces and without characters that change a terminal, for a line of words."""
    return "-".join("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text).split())
