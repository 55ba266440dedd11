"""The script of the server, and its arguments and keys. Opens no socket.

`records.lua` is what runs in Redis or Valkey, called by its digest (EVALSHA). So masters of different versions can
share a server, and servers without FUNCTION can be used.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from headgate.limit.domain import Domain
from headgate.limit.history import ALGORITHMS

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
