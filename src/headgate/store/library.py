"""The function library of the server, and the arguments and keys of its functions. Opens no socket.

`library.lua` is the code that runs in Redis or Valkey. Its name contains a digest of the code, so that masters of
different versions can share a server.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from headgate.limit.domain import Domain
from headgate.limit.history import ALGORITHMS, rounded_milliseconds

KEY_PREFIX: Final = b"headgate:"
"""The beginning of every key."""

EXTRA_LIFE: Final = 3_600.0
"""Seconds that a value may live longer than the longest window of its rules."""

_SOURCE: Final = Path(__file__).with_name("library.lua").read_text("utf-8")

NAME: Final = f"headgate_{hashlib.sha256(_SOURCE.encode()).hexdigest()[:16]}"
"""The name of the library, and the beginning of the names of its functions."""

CODE: Final = f"#!lua name={NAME}\n{_SOURCE.replace('NAME_', NAME + '_')}"
"""What ``FUNCTION LOAD`` takes."""

RECORD: Final = f"{NAME}_record".encode()
"""The function that records requests; returns for each the release time of its identifier, or `ASAP`."""

EXTEND: Final = f"{NAME}_extend".encode()
"""The function that extends stored holds; returns the holds in force."""

PROBE_ARGUMENTS: Final = (b"gcra", bytes(8), bytes(16), b"")
"""Arguments after the keys of a call that records nothing."""


class DomainFunctions:
    """What the functions need to know of a domain that has rules.

    No stored instant is taken to be more than `longest_hold` seconds ahead of the time of a record.
    """

    __slots__ = ("_in_milliseconds", "_prefix", "arguments", "domain", "selective")

    def __init__(self, domain: Domain, longest_hold: float) -> None:
        self.domain = domain
        """The domain."""
        self.selective = bool(domain.exempt)
        """Whether rules do not apply to some identifiers."""
        self._prefix = KEY_PREFIX + b"{" + _escape(domain.name) + b";"
        self._in_milliseconds = domain.algorithm == "smockron"
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
        """The first arguments of both functions: algorithm, fingerprint and parameters."""

    def key(self, identifier: bytes) -> bytes:
        """Return the key of an identifier; the hash tag of a cluster is the domain and the identifier."""
        return self._prefix + identifier + b"}"

    def pack_records(self, function: bytes, instants: Iterable[float]) -> bytes:
        """Return the last argument of a function, two instants for each record.

        They are the timestamp and the time of its arrival for `RECORD`, the end of a hold and the present for `EXTEND`.
        """
        if self._in_milliseconds and function == RECORD:
            instants = map(rounded_milliseconds, instants)
        return pack_doubles(instants)


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
