"""A master whose records are shared with other masters: by the script of the server, its arguments and its keys.

Opens no socket. `records.lua` is what runs in Redis or Valkey, called by its digest (EVALSHA). So masters of different
versions can share a server, and servers without FUNCTION can be used.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from headgate.limit.domain import Domain
from headgate.limit.gatekeeper import longest_hold
from headgate.limit.history import ALGORITHMS, MAX_LATENESS, spread
from headgate.limit.master import Master
from headgate.release import Status

KEY_PREFIX: Final = b"headgate:"
"""The beginning of every key."""

EXTRA_LIFE: Final = 3_600.0
"""Seconds that a value may live longer than the longest window of its rules."""

BUCKETS: Final = 1_024
"""The hash tags of a domain, by which a cluster distributes its keys; one call has the records of one bucket."""

SCRIPT: Final = Path(__file__).with_name("records.lua").read_bytes()
"""What SCRIPT LOAD takes."""

DIGEST: Final = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()
"""What EVALSHA takes."""

RECORD: Final = b"record"
"""The operation that records requests; returns for each the release time of its identifier, or `ASAP`."""

EXTEND: Final = b"extend"
"""The operation that extends stored holds; returns the holds in force."""

PROBE: Final = b"probe"
"""The operation that fails where nothing can be written."""

PROBE_KEY: Final = KEY_PREFIX + b"{probe}"
"""The key that it writes."""


def bucket(identifier: bytes) -> int:
    """Return the number of the bucket of an identifier."""
    return zlib.crc32(identifier) % BUCKETS


class SharedDomain:
    """What the script needs to know of a domain that has rules.

    No stored instant is taken to be more than `longest_hold` seconds ahead of the time of a record.
    """

    __slots__ = ("_prefix", "arguments", "domain", "selective")

    def __init__(self, domain: Domain, longest_hold: float) -> None:
        self.domain = domain
        """The domain."""
        self.selective = bool(domain.exempt)
        """Whether rules do not apply to some identifiers."""
        self._prefix = KEY_PREFIX + b"{" + _escape(domain.name) + b";"
        rules = [number for rule in ALGORITHMS[domain.algorithm](domain.rules).parameters for number in rule]
        numbers = struct.pack(f"<{len(rules)}d", *rules)
        name = domain.algorithm.encode()
        life = max(rule.window for rule in domain.rules) + EXTRA_LIFE
        self.arguments: tuple[bytes, bytes, bytes] = (
            name,
            # Six bytes are a whole number that a double has exactly, and never NaN.
            pack_doubles([int.from_bytes(hashlib.blake2b(name + numbers, digest_size=6).digest(), "big")]),
            struct.pack("<dd", longest_hold, life) + numbers,
        )
        """The arguments after the operation: algorithm, fingerprint and parameters."""

    def key(self, identifier: bytes) -> bytes:
        """Return the key of an identifier; the hash tag of a cluster is the domain and the bucket."""
        return b"%b%d}:%b" % (self._prefix, bucket(identifier), identifier)


def pack_doubles(numbers: Iterable[float]) -> bytes:
    """Return doubles of 8 bytes, little-endian."""
    doubles = list(numbers)
    return struct.pack(f"<{len(doubles)}d", *doubles)


def unpack_doubles(reply: bytes) -> Sequence[float]:
    """Return the doubles of a reply."""
    return struct.unpack(f"<{len(reply) // 8}d", reply)


def _escape(name: str) -> bytes:
    """Percent-encode what would end the domain or the hash tag, and what cannot be printed."""
    raw = name.encode("utf-8", "surrogateescape")
    return b"".join(b"%c" % byte if 0x20 < byte < 0x7F and byte not in b"%;{}" else b"%%%02X" % byte for byte in raw)


_REJECTED = Status.REJECTED
_MAX_SHARED: Final = 256
"""Requests of a report that are shared."""
Share = Callable[[SharedDomain, bytes, float, float], None]


class SharedMaster(Master):
    """A `Master` that shares each record that counts, after it has applied it to its own memory.

    `share` is called with a domain, an identifier, the timestamp of a request and the time of its arrival.
    """

    def __init__(self, domains: Iterable[Domain], share: Share, *, max_identifiers: int, max_delay: float) -> None:
        super().__init__(domains, max_identifiers=max_identifiers, max_delay=max_delay)
        self.shared = {
            name: SharedDomain(domain, longest_hold([domain], max_delay))
            for name, domain in self.domains.items()
            if domain.rules and domain.mode != "off"
        }
        """The domains whose records are shared, by name."""
        self._add = share

    def record(self, domain: str, status: Status, identifier: bytes, timestamp: float, now: float) -> float:
        """Record an accounting message, as `Master.record`, and share it; stored instants are wall-clock time.

        A message that is late counts only here, as far as the rule permits: the store counts all that it gets.
        """
        release = Master.record(self, domain, status, identifier, timestamp, now)  # faster than super()
        if status is not _REJECTED and timestamp >= now - MAX_LATENESS:
            shared = self.shared.get(domain)
            if shared is not None and not (shared.selective and shared.domain.exempts(identifier)):
                behind = self.clock.behind
                self._add(shared, identifier, timestamp - behind, now - behind)
        return release

    def record_many(
        self, domain: str, identifier: bytes, *, accepted: int, rejected: int, start: float, now: float, owed: int = 0
    ) -> float:
        """Record the requests of a report, as `Master.record_many`, and share as many of the last as a burst has."""
        release = super().record_many(
            domain, identifier, accepted=accepted, rejected=rejected, start=start, now=now, owed=owed
        )
        shared = self.shared.get(domain)
        if shared is not None and accepted and not (shared.selective and shared.domain.exempts(identifier)):
            behind = self.clock.behind
            burst = max(rule.burst for rule in shared.domain.rules)
            for timestamp in spread(start, now, accepted, min(burst, _MAX_SHARED)):
                self._add(shared, identifier, max(timestamp, now - MAX_LATENESS) - behind, now - behind)
        return release
