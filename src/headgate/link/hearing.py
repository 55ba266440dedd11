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

_MOST_OTHERS = 1_000
"""Subscriptions that concern none of the domains and are kept all the same: domains may be added."""


class Hearing:
    """The subscriptions in force, and what they mean for each of `domains`.

    Raises `ConfigurationError` for a `mode` that is none.
    """

    def __init__(self, domains: Iterable[str], mode: AccountingMode) -> None:
        if mode not in _MODES:
            raise ConfigurationError(f"invalid accounting {mode!r}; expected one of {', '.join(_MODES)}")
        self.ways: dict[str, Way] = {}
        """How each domain's accounting goes now."""
        self._mode = mode
        self._counts: Counter[bytes] = Counter()
        self.change(domains)

    def change(self, domains: Iterable[str]) -> None:
        """Apply the subscriptions in force to other domains from now on."""
        self._topics = {name: (topic(name), batch_topic(name)) for name in domains}
        self._work_out()

    def hear(self, message: bytes) -> None:
        """Take what an XPUB socket receives: 1 or 0 and a topic, once for each peer that (un)subscribes it."""
        kind, prefix = message[:1], message[1:]
        is_known = prefix in self._counts
        if kind == _SUBSCRIBE and (is_known or len(self._counts) < _MOST_OTHERS or self._concerns_ours(prefix)):
            self._counts[prefix] += 1
        elif kind == _UNSUBSCRIBE and is_known:
            self._counts[prefix] -= 1
            if not self._counts[prefix]:
                del self._counts[prefix]
        self._work_out()

    def _concerns_ours(self, prefix: bytes) -> bool:
        return any(frame.startswith(prefix) for frames in self._topics.values() for frame in frames)

    def _work_out(self) -> None:
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
