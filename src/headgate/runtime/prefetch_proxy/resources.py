"""What a proxy has once, however many processes it runs: settings, certificate files, advice, log."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from headgate.config.proxy import Proxy
from headgate.errors import ConfigurationError
from headgate.proxy.admission.advice_service import AdviceService
from headgate.proxy.admission.shared_replay_store import create_replay_table
from headgate.proxy.log import LogWriter
from headgate.runtime.prefetch_proxy.certificate import self_signed
from headgate.runtime.prefetch_proxy.messages import SharedResources

__all__ = ["ProxyResources", "certificate_files", "open_log"]

_DRAW_KEY_SIZE: Final = 32


class ProxyResources(NamedTuple):
    """See the module."""

    settings: Proxy
    files: tuple[str, str] | None
    """The certificate and its key; None in plaintext."""
    admin_addresses: Sequence[tuple[str, int]]
    """Numeric addresses of the admin listener, which no tunnel may lead to."""
    advising: AdviceService
    lines: LogWriter

    def share(self, *, places: int, listeners: Sequence[tuple[str, int]]) -> SharedResources:
        """Return what all processes share, for a proxy that listens at these numeric addresses.

        Raises `ConfigurationError` for plaintext beyond loopback.
        """
        settings = self.settings
        is_loopback = all(ip_address(host.partition("%")[0]).is_loopback for host, _ in listeners)
        if settings.plaintext and not is_loopback and not settings.insecure:
            raise ConfigurationError(
                f"--plaintext at {settings.listen} would show CONNECT requests to others on the network; listen at "
                "127.0.0.1, use a certificate, or add --insecure where something before the proxy ends TLS"
            )
        return SharedResources(
            key=os.urandom(_DRAW_KEY_SIZE),
            places=places,
            tokens=create_replay_table() if settings.token_keys and not settings.token_store else None,
            listeners=(*listeners, *self.admin_addresses),
            files=self.files,
        )


@contextmanager
def certificate_files(settings: Proxy, host: str) -> Iterator[tuple[str, str] | None]:
    """Give the files of the certificate and its key while inside; None in plaintext."""
    if settings.self_signed:
        with self_signed(host) as files:
            yield files
    else:
        yield None if settings.plaintext else (settings.cert, settings.key)


@contextmanager
def open_log() -> Iterator[LogWriter]:
    """Give the log while inside, with exceptions of the event loop written to it. Logging never waits for stderr."""
    lines = LogWriter()

    def log_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        lines.say(f"headgate: internal error: {context.get('message')}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(log_exception)
    try:
        yield lines
    finally:
        lines.close()
