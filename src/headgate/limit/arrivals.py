"""What gatekeepers that know the rules count for themselves, until the master has answered.

This module knows neither messages nor clocks. A control arrives one control delay after the request that caused it, and
a fast client has had a multiple of its burst by then. So a gatekeeper also applies the rules to its own requests; the
workers of a gate apply them to the requests of all, in memory that they share. The master decides all the same: what is
missing here is limited one control delay later.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from headgate.limit.domain import Domain
from headgate.limit.history import Gcra
from headgate.release import ASAP, advance

_ENTRIES: Final = 65_536
_KEY_SIZE: Final = 32
MEMORY_SIZE: Final = _KEY_SIZE + 16 * _ENTRIES
"""Bytes of memory: a random key, a tag for each entry, and its theoretical arrival time."""
_ROUNDING: Final = 0.001
"""Seconds by which a release on the wire may be rounded up."""

Entry = tuple[int, int, float, float]
"""Of an identifier and a rule: the index in the memory, the tag, the interval, and the negated tolerance."""


class Arrivals:
    """The theoretical arrival times of identifiers (see `Gcra`), one for each rule; all instants are of one clock.

    `memory` has `MEMORY_SIZE` bytes, zeros after a random key; several processes may share it, without a lock. If two
    change an entry at the same instant, one of the two requests is not counted. An entry that is in use is not given
    to another identifier. Domains with another algorithm than `gcra`, and those that are not enforced, are left out.
    """

    def __init__(self, domains: Iterable[Domain], memory: memoryview) -> None:
        key, half = bytes(memory[:_KEY_SIZE]), _KEY_SIZE + 8 * _ENTRIES
        self._tags, self._times = memory[_KEY_SIZE:half].cast("Q"), memory[half:MEMORY_SIZE].cast("d")
        self._domains = {
            domain.name: (
                domain,
                Gcra(domain.rules).parameters,
                blake2b(repr((domain.name, domain.rules)).encode(), digest_size=8, key=key),
            )
            for domain in domains
            if domain.rules and domain.algorithm == "gcra" and domain.mode == "enforce"
        }

    def entries(self, domain: str, identifier: bytes) -> list[Entry]:
        """Return the entry of each rule; none for a domain that is left out, or an exempt identifier."""
        known = self._domains.get(domain)
        if known is None or (known[0].exempt and known[0].exempts(identifier)):
            return []
        keyed = known[2].copy()
        keyed.update(identifier)
        tag = int.from_bytes(keyed.digest()) or 1
        return [
            ((tag + number) % _ENTRIES, tag, interval, tolerance)
            for number, (interval, tolerance) in enumerate(known[1])
        ]

    def release(self, entries: list[Entry]) -> float:
        """Return when the next request is permitted, as far as is known here; `ASAP` for an unknown identifier."""
        release = ASAP
        for at, tag, _, tolerance in entries:
            if self._tags[at] == tag:
                release = max(release, advance(self._times[at], tolerance))
        return release

    def history(self, domain: str, identifier: bytes) -> Sequence[float] | None:
        """Return the history of an identifier in the form of `Gcra`; None if one of its rules is unknown."""
        entries = self.entries(domain, identifier)
        known = [self._times[at] for at, tag, _, _ in entries if self._tags[at] == tag]
        return [ASAP, *known] if known and len(known) == len(entries) else None

    def reset(self, entries: list[Entry]) -> None:
        """Forget what is counted of an identifier."""
        for at, tag, _, _ in entries:
            if self._tags[at] == tag:
                self._times[at] = 0.0

    def record(self, entries: list[Entry], timestamp: float, *, now: float, hold: float) -> None:
        """Record a request at `timestamp`, which is decided on at `now`; `hold` is its last release from the master.

        With one rule, a hold shows what all gatekeepers together have admitted.
        """
        for at, tag, interval, tolerance in entries:
            arrival = max(timestamp, hold - _ROUNDING - tolerance) if len(entries) == 1 else timestamp
            if self._tags[at] == tag:
                self._times[at] = advance(max(self._times[at], arrival), interval)
            elif self._times[at] <= now:
                self._tags[at], self._times[at] = tag, advance(arrival, interval)
