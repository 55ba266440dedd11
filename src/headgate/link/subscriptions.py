"""The subscriptions that an accounting socket receives from a master, and the encoding that each domain needs.

This module opens no socket. An original master subscribes to everything and reads the document's frames. A headgate
master also subscribes to a topic that no domain can have, to announce that it reads batches (docs/reference/wire.md).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from headgate.errors import ConfigurationError
from headgate.limit.messages import topic
from headgate.link.announcement import is_announcement
from headgate.link.batch import BATCH, batch_topic

AccountingMode = Literal["auto", "frames", "batch"]
"""How a gatekeeper sends its accounting: always in one encoding, or in one that all subscribers can read."""

Encoding = Literal["frames", "batch", "unheard"]
"""The encoding of a domain's accounting; `unheard` if no master subscribes to it."""

_MODES: tuple[AccountingMode, ...] = ("auto", "frames", "batch")
_SUBSCRIBE, _UNSUBSCRIBE = b"\1", b"\0"

_MAX_OTHER_SUBSCRIPTIONS = 1_000
"""Subscriptions kept that match none of the domains; a reload may add domains."""


class Subscriptions:
    """The subscriptions in force, and the encoding that follows for each of `domains`.

    Raises `ConfigurationError` for an invalid `mode`.
    """

    def __init__(self, domains: Iterable[str], mode: AccountingMode) -> None:
        if mode not in _MODES:
            raise ConfigurationError(f"invalid accounting {mode!r}; expected one of {', '.join(_MODES)}")
        self.encodings: dict[str, Encoding] = {}
        """The encoding of each domain's accounting."""
        self.arrivals = 0
        """Subscriptions to accounting so far: it increases when a master connects."""
        self._mode = mode
        self._counts: Counter[bytes] = Counter()
        self.set_domains(domains)

    def set_domains(self, domains: Iterable[str]) -> None:
        """Replace the domains; the subscriptions stay in force."""
        self._topics = {name: (topic(name), batch_topic(name)) for name in domains}
        self._choose_encodings()

    def __bool__(self) -> bool:
        """Whether a master is subscribed to anything."""
        return bool(self._counts)

    @property
    def announcements(self) -> list[bytes]:
        """The announcements of new masters; none if a peer may be an original master, which does not expect batches."""
        if self._mode == "frames" or self._counts[b""] > self._counts[BATCH]:
            return []
        return [prefix for prefix in self._counts if is_announcement(prefix)]

    @property
    def reads_batches(self) -> bool:
        """Whether a master reads batches of any domain."""
        return any(prefix.startswith(BATCH) for prefix in self._counts)

    def encoding(self, domain: str) -> Encoding:
        """Return the encoding of the accounting of any domain."""
        return self._encoding(topic(domain), batch_topic(domain))

    def update(self, message: bytes) -> None:
        """Apply a message that an XPUB socket received: 1 or 0 and a topic, once for each peer that (un)subscribes."""
        kind, prefix = message[:1], message[1:]
        is_known = prefix in self._counts
        has_room = len(self._counts) < _MAX_OTHER_SUBSCRIPTIONS
        if kind == _SUBSCRIBE and (is_known or has_room or self._matches_domain(prefix)):
            self._counts[prefix] += 1
            self.arrivals += not is_announcement(prefix)
        elif kind == _UNSUBSCRIBE and is_known:
            self._counts[prefix] -= 1
            if not self._counts[prefix]:
                del self._counts[prefix]
        self._choose_encodings()

    def _matches_domain(self, prefix: bytes) -> bool:
        return any(frame.startswith(prefix) for frames in self._topics.values() for frame in frames)

    def _choose_encodings(self) -> None:
        self.encodings = {name: self._encoding(*frames) for name, frames in self._topics.items()}

    def _encoding(self, frames_topic: bytes, batches_topic: bytes) -> Encoding:
        batches = sum(count for prefix, count in self._counts.items() if _is_for_batches(prefix, batches_topic))
        frames = sum(count for prefix, count in self._counts.items() if frames_topic.startswith(prefix))
        # A headgate master subscribes to both. More subscriptions to frames than to batches: one is an original master.
        if batches and (self._mode == "batch" or (self._mode == "auto" and frames <= batches)):
            return "batch"
        return "frames" if frames and self._mode != "batch" else "unheard"


def _is_for_batches(prefix: bytes, batches_topic: bytes) -> bool:
    """Return whether a subscription names the topic of batches; a subscription to everything does not."""
    return len(prefix) >= len(BATCH) and batches_topic.startswith(prefix)
