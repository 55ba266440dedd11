"""What a proxy has once, whether it is one process or the parent of several: log, certificate, advice, admin listener.

`live` is its life, from the first sentence to the last.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from ipaddress import ip_address
from typing import Final, Protocol, TypeAlias

from headgate.config import Address
from headgate.config.proxy import Proxy
from headgate.errors import ConfigurationError, HeadgateError
from headgate.proxy.admission.advice_service import AdviceService
from headgate.proxy.admission.shared_replay_store import create_replay_table
from headgate.proxy.counters import Counts, merged
from headgate.proxy.log import TrafficSummary
from headgate.runtime.admin_server import AdminServer
from headgate.runtime.event_loop import Signals
from headgate.runtime.listen import address_sentence
from headgate.runtime.prefetch_proxy.build import check_proxy, trust_of
from headgate.runtime.prefetch_proxy.certificate import self_signed
from headgate.runtime.prefetch_proxy.log_setup import log_lines
from headgate.runtime.prefetch_proxy.messages import Share, WorkerState
from headgate.runtime.prefetch_proxy.metrics import proxy_metrics
from headgate.runtime.prefetch_proxy.state import ProxyState, shown

__all__ = ["Body", "Front", "ReadProxy", "live"]

ReadProxy: TypeAlias = Callable[[], tuple[Proxy, str | None]]
"""Reads the table [proxy], at the start and at each reload; gives also the name of its file, if there is one."""

_TALLY_EVERY: Final = 60.0
_DRAW_KEY: Final = 32
_SELF_SIGNED: Final = "self-signed certificate, for trying it out: tell clients to accept it (curl --proxy-insecure)"
_READ_AGAIN: Final = "the certificate, the token keys and the geofeed read again"


class Body(Protocol):
    """What does the work: this process, or workers."""

    def unready(self) -> str:
        """Say why no CONNECT is accepted; empty when they are."""

    async def states(self) -> list[WorkerState]:
        """Give what every process that accepts counts, and has counted."""

    def renew(self) -> None:
        """Read the files again that are read again; raises `HeadgateError` and leaves all as it is."""

    async def end(self, seconds: float) -> int:
        """Accept no more and give open tunnels `seconds` to end; returns how many had to be cut.

        A second call, while the first one waits, has it wait no longer.
        """


class Front:
    """See the module; all that is opened goes with `closing`."""

    def __init__(self, settings: Proxy, closing: AsyncExitStack) -> None:
        self.settings = settings
        self.address = Address.parse(settings.listen)
        """Where to listen; with the true port, once that is known."""
        self.lines: Final = closing.enter_context(log_lines())
        """Where all is said, and by nobody waited for."""
        self._files = closing.enter_context(_certified(settings, self.address.host))
        self._counts = Counts()
        self.advising: Final = AdviceService(
            settings.brand,
            tls=trust_of(settings),
            counts=self._counts,
            unreachable_for=settings.unreachable_hold,
        )
        closing.callback(self.advising.close)
        self._body: Body | None = None
        self._admin = AdminServer(self.state, self.unready, proxy_metrics, to_json=shown)
        closing.push_async_callback(self._admin.close)
        self._tally = TrafficSummary(now=time.time())

    async def open_admin(self) -> None:
        """Open the admin listener, if there is to be one. Raises `ConfigurationError`."""
        if not self.settings.admin:
            return
        address = Address.parse(self.settings.admin)
        try:
            await self._admin.start(address)
        except OSError as error:
            raise ConfigurationError(address_sentence("--admin", address, error)) from None

    def share(self, *, places: int, listeners: Sequence[tuple[str, int]]) -> Share:
        """Give what all processes have in common, where clients are listened to at these addresses, in figures.

        Raises `ConfigurationError` where plaintext may not be spoken there.
        """
        settings = self.settings
        beyond = not all(ip_address(host.partition("%")[0]).is_loopback for host, _ in listeners)
        if settings.plaintext and beyond and not settings.insecure:
            raise ConfigurationError(
                f"--plaintext at {self.address} would show others what is asked for; listen at 127.0.0.1, use a "
                "certificate, or add --insecure where something before it speaks TLS"
            )
        self.address = self.address._replace(port=listeners[0][1])
        return Share(
            key=os.urandom(_DRAW_KEY),
            places=places,
            tokens=create_replay_table() if settings.token_keys and not settings.token_store else None,
            listeners=(*listeners, *self._admin.addresses),
            files=self._files,
        )

    def open(self, body: Body) -> None:
        """Hear who does the work, which is done from now on."""
        self._body = body
        settings = self.settings
        scheme = "http" if settings.plaintext else "https"
        if settings.self_signed:
            self.lines.say(f"headgate: {_SELF_SIGNED}")
        self.lines.say(f"headgate: brand {_word(settings.brand)} workers {settings.workers} admin {self._admin.url}")
        # Whoever waits for this line takes the address from it: it has no other.
        self.lines.say(f"ready {scheme}://{self.address}")

    def renew(self) -> None:
        """Have the files read again that are read again, by whoever has read them; see `Body`."""
        if self._body is not None:
            self._body.renew()

    async def tell(self) -> None:
        """Tell what was let through since this was last done, unless each tunnel is told."""
        if self.settings.log == "refusals":
            line = self._tally.line((await self.state()).counts, now=time.time())
            if line is not None:
                self.lines.write(line)

    def unready(self) -> str:
        """Say why no CONNECT is accepted; empty when they are."""
        return "starting" if self._body is None else self._body.unready()

    async def state(self, *, whole: bool = False) -> ProxyState:
        """Read what is going on; what is known of origins only when the `whole` is asked for."""
        told = [] if self._body is None else await self._body.states()
        counts, now = merged([self._counts, *(one.counts for one in told)]), time.time()
        known = {origin: self.advising.known(origin, now=now) for origin in counts.origins} if whole else {}
        return ProxyState(
            counts,
            {origin: advice for origin, advice in known.items() if advice is not None},
            now,
            dropped=sum(one.dropped for one in told),
            draining=self.unready() == "draining",
        )


async def live(read: ReadProxy, start: Callable[[Front, AsyncExitStack], Awaitable[Body]]) -> int:
    """Serve until a signal ends it, with the body that `start` gives once that accepts; returns the exit code."""
    settings, _ = read()
    check_proxy(settings)
    async with AsyncExitStack() as closing:
        front = Front(settings, closing)
        # From here on a signal ends it in good order, however far it has come.
        signals = Signals(lambda: _read_again(read, front))
        await front.open_admin()
        body = await start(front, closing)
        front.open(body)
        telling = asyncio.ensure_future(_tell_again_and_again(front))
        await signals.asked.wait()
        telling.cancel()
        cut = await _end(body, settings.drain, signals)
        await front.tell()
        if cut:
            text = "1 tunnel had not ended and was cut" if cut == 1 else f"{cut} tunnels had not ended and were cut"
            front.lines.say(f"headgate: {text}")
    return 0


async def _end(body: Body, seconds: float, signals: Signals) -> int:
    """End, and at once where that is insisted on; returns how many tunnels were cut."""
    ending = asyncio.ensure_future(body.end(seconds))
    insisted = asyncio.ensure_future(signals.insisted.wait())
    await asyncio.wait([ending, insisted], return_when=asyncio.FIRST_COMPLETED)
    insisted.cancel()
    if not ending.done():
        await body.end(0)
    return await ending


async def _tell_again_and_again(front: Front) -> None:
    while True:
        await asyncio.sleep(_TALLY_EVERY)
        await front.tell()


def _read_again(read: ReadProxy, front: Front) -> None:
    """Read what can be read again; what is wrong leaves all in force and is said."""
    old = front.settings
    try:
        new, _ = read()
        front.renew()
    except (HeadgateError, OSError) as error:
        front.lines.say(f"headgate: {error}; what is in force stays as it is")
        return
    changed = [f"proxy.{name}" for name in old.__struct_fields__ if getattr(new, name) != getattr(old, name)]
    rest = f"; a restart is needed for {', '.join(changed)}" if changed else ""
    front.lines.say(f"headgate: {_READ_AGAIN}{rest}")


@contextmanager
def _certified(settings: Proxy, host: str) -> Iterator[tuple[str, str] | None]:
    """Have the files of a certificate and its key; none in plaintext."""
    if settings.self_signed:
        with self_signed(host) as files:
            yield files
    else:
        yield None if settings.plaintext else (settings.cert, settings.key)


def _word(text: str) -> str:
    """Give a text without spaces and without characters that change a terminal, for a line of words."""
    return "-".join("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text).split())
