"""What the processes of a proxy tell each other, beside what every parent and its workers do."""

import msgspec

from headgate.config.proxy import Proxy
from headgate.proxy.admission.remote_advice import AdviceQuery, AdviceReply
from headgate.proxy.counters import Counts
from headgate.runtime.ipc import Ask, Configure, End, Failed, Ready, Told

__all__ = ["Assignment", "FromParent", "FromWorker", "Renew", "Share", "WorkerState"]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What all workers of a proxy have in common, and which of them this is."""

    key: bytes
    """What the sticky draws are made with."""
    places: int
    """Descriptor of the places for tunnels, which is the worker's from then on."""
    tokens: int | None
    """Descriptor of the tokens that were shown, likewise; None where none are asked for, or Redis remembers."""
    listeners: tuple[tuple[str, int], ...]
    """Where the proxy and its admin listener listen, in figures."""
    files: tuple[str, str] | None
    """The certificate and its key; None in plaintext."""
    worker: int = 0
    """Its number, from 0."""


class WorkerState(msgspec.Struct, frozen=True):
    """What one process that accepts connections tells of itself."""

    counts: Counts
    """What it counted; nothing of the advice, where that is asked for elsewhere."""
    dropped: int = 0
    """Lines of its log that nobody will read."""
    cut: int = 0
    """Tunnels that had not ended when it did."""


class Assignment(msgspec.Struct, frozen=True):
    """What a worker is to be."""

    settings: Proxy
    share: Share
    addresses: tuple[tuple[str, int], ...]
    """Where to listen, in figures."""


class Renew(msgspec.Struct, frozen=True, tag=True):
    """Parent to worker: read the files again that are read again."""


FromParent = Configure[Assignment] | Ask | End | Renew | AdviceReply
FromWorker = Ready | Failed | Told[WorkerState] | AdviceQuery
