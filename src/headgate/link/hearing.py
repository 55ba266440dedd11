"""What a gatekeeper knows of those who listen, from the subscriptions its accounting socket sees.

This file knows nothing of sockets. An original master subscribes to everything and reads the document's frames; a
headgate master subscribes to everything and, besides, to a topic no domain can have, and so says that it reads
batches (docs/reference/wire.md).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from headgate.errors import ConfigurationError
from headgate.limit.wire import topic
from headgate.link.batch import BATCH, batch_topic

__all__ = ["AccountingMode", "Hearing", "Way"]

AccountingMode = Literal["auto", "frames", "batch"]
"""How a gatekeeper sends its accounting: as the listeners can read it, or always in one way."""

Way = Literal["frames", "batch", "unheard"]
"""How the accounting of one domain goes now."""

_MODES: tuple[AccountingMode, ...] = ("auto", "frames", "batch")
_SUBSCRIBE, _UNSUBSCRIBE = b"\1", b"\0"


class Hearing:
    """The subscriptions in force, and what they mean for each of `domains`.

    Raises `ConfigurationError` for a `mode` that is none.
    """

    def __init__(self, domains: Iterable[str], mode: AccountingMode) -> None:
        if mode not in _MODES:
            raise ConfigurationError(f"{mode!r} is no way of accounting; use {', '.join(_MODES)}")
        self.ways: dict[str, Way] = dict.fromkeys(domains, "unheard")
        """How each domain's accounting goes now."""
        self._mode = mode
        self._topics = {name: (topic(name), batch_topic(name)) for name in self.ways}
        self._counts: Counter[bytes] = Counter()

    def hear(self, message: bytes) -> None:
        """Take what an XPUB socket receives: 1 or 0 and a topic, once for each peer that (un)subscribes it."""
        kind, prefix = message[:1], message[1:]
        # What bears on no domain of ours is not kept, so a flood of topics finds little room.
        if not any(frame.startswith(prefix) for frames in self._topics.values() for frame in frames):
            return
        if kind == _SUBSCRIBE:
            self._counts[prefix] += 1
        elif kind == _UNSUBSCRIBE:
            self._counts[prefix] = max(0, self._counts[prefix] - 1)
        self.ways = {name: self._way(*frames) for name, frames in self._topics.items()}

    def _way(self, plain: bytes, batched: bytes) -> Way:
        batches = sum(count for prefix, count in self._counts.items() if _names(prefix, batched))
        frames = sum(count for prefix, count in self._counts.items() if plain.startswith(prefix))
        # As many who hear frames as batches: every one of them reads both. One more, and an original is among them.
        if batches and (self._mode == "batch" or (self._mode == "auto" and frames <= batches)):
            return "batch"
        return "frames" if frames and self._mode != "batch" else "unheard"


def _names(prefix: bytes, batched: bytes) -> bool:
    """Say whether a subscription asks for batches by name; one to everything does not."""
    return len(prefix) >= len(BATCH) and batched.startswith(prefix)
