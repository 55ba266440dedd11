"""Rendezvous hashing: which of several masters gets the accounting of a domain, or of one identifier of it.

"A ZeroMQ router may be employed to shard accounting messages to multiple masters, provided that all messages for the
same domain go to the same master" (smockron.txt, Protocol). Each master has a weight for each item, and the one with
the largest weight owns the item. So all gatekeepers and routers that list the same masters agree without a message, and
a master that is lost or added moves only items of its own. This module knows neither frames nor sockets.
"""

from collections.abc import Container, Iterable
from hashlib import blake2b

from headgate.limit.messages import topic

_WEIGHT_SIZE = 8
_KEY_SIZE = 32


class Sharding:
    """Assigns items to `masters`, the texts of their addresses; their order has no effect."""

    def __init__(self, masters: Iterable[str]) -> None:
        # An address may be longer than the key of a hash, so the key is its digest.
        keys = {
            address: blake2b(address.encode("utf-8", "surrogateescape"), digest_size=_KEY_SIZE).digest()
            for address in masters
        }
        self.digest = blake2b(b"".join(sorted(keys.values())), digest_size=_WEIGHT_SIZE).digest()
        """What two sides have in common that assign all items alike."""
        self._hashes = [(address, blake2b(key=key, digest_size=_WEIGHT_SIZE)) for address, key in keys.items()]

    def owner(self, item: bytes, live: Container[str]) -> str | None:
        """Return the master among those in `live` with the largest weight for `item`; None if none is live."""
        best = (b"", "")
        for address, keyed in self._hashes:
            if address in live:
                weight = keyed.copy()
                weight.update(item)
                best = max(best, (weight.digest(), address))
        return best[1] or None


def sharding_item(domain: str, identifier: bytes = b"") -> bytes:
    """Return the item that stands for a domain, or for one identifier of it.

    A domain contains no NUL, so two different pairs are two items.
    """
    return topic(domain) + identifier
