"""Messages between the processes of a proxy, beside those of every supervisor and its workers."""

import msgspec

from headgate.config import Address
from headgate.config.proxy import Proxy
from headgate.proxy.admission.remote_advice import AdviceQuery, AdviceReply
from headgate.proxy.counters import Counts
from headgate.runtime.ipc import Configure, Ready, Shutdown, StartFailed, StateQuery, StateReport


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
    """Descriptor of the table of used tokens, likewise; None without tokens, or where Redis keeps them."""
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
