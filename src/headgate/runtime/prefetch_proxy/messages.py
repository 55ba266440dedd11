"""Messages between the processes of a proxy, beside those of every supervisor and its workers."""

import msgspec

from headgate.config.proxy import Proxy
from headgate.proxy.admission.remote_advice import AdviceQuery, AdviceReply
from headgate.proxy.counters import Counts
from headgate.runtime.ipc import Configure, Ready, Shutdown, StartFailed, StateQuery, StateReport

__all__ = ["FromSupervisor", "FromWorker", "ProxyConfiguration", "SharedResources", "WorkerState"]


class SharedResources(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes of a proxy have in common, and the number of this one."""

    key: bytes
    """The key of the draws that stay the same for a client and an origin."""
    places: int
    """Descriptor of the table of open tunnels, owned by the process that gets it."""
    tokens: int | None
    """Descriptor of the table of used tokens, likewise; None without tokens, or where Redis keeps them."""
    listeners: tuple[tuple[str, int], ...]
    """Numeric addresses of the proxy and its admin listener."""
    files: tuple[str, str] | None
    """The certificate and its key; None in plaintext."""
    worker: int = 0
    """The number of the worker, from 0."""


class WorkerState(msgspec.Struct, frozen=True):
    """The state of one process that accepts connections."""

    counts: Counts
    """What it has counted; without advice fetches, where another process fetches advice."""
    dropped: int = 0
    """Log lines dropped."""
    cut: int = 0
    """Tunnels closed at its end before they had ended."""


class ProxyConfiguration(msgspec.Struct, frozen=True):
    """The configuration of one worker."""

    settings: Proxy
    shared: SharedResources
    addresses: tuple[tuple[str, int], ...]
    """Numeric addresses to listen at."""


FromSupervisor = Configure[ProxyConfiguration] | StateQuery | Shutdown | AdviceReply
FromWorker = Ready | StartFailed | StateReport[WorkerState] | AdviceQuery
