"""Tables of expiring values by identifier, with a common limit, where no operation visits every entry.

This module knows neither rules, holds nor clocks. Untrusted input chooses the identifiers, so the cost of one more must
not grow with their number. A dictionary that grows copies all of its entries, which takes 0.2 s for a million: a table
is `SHARDS` small dictionaries. A search for expired entries takes as long: a table keeps its identifiers in lists, one
for each `tick` in which entries expire. An entry whose expiry was postponed stays in its list until that list is due,
and is then moved.
"""

import math
import sys
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

SHARDS = 251
"""Dictionaries in a table; with a million entries each copies 4,000 when it grows.

`hash(identifier) % SHARDS` is the index of one. A prime, since a dictionary places its entries by the low bits of the
same hash."""

EXAMINED_AT_ONCE = 16
"""Entries examined to make room for a new one."""

BATCH_SIZE = 4_096
"""Entries visited at once by a caller that visits all: half a millisecond."""

_EXAMINED_AHEAD = 2
"""Entries examined for each new one while there is room: more than one, so that expired entries do not accumulate."""

_LAST = 1e15
"""Seconds. Later expiries, including infinity, share one list, which is never due."""

V = TypeVar("V")


class _Schedule:
    """Identifiers by tick; those of the first tick are taken first."""

    __slots__ = ("_due", "size", "ticks")

    def __init__(self) -> None:
        self.size = 0
        """The number of identifiers."""
        self.ticks: list[int] = []
        """The ticks that have an identifier, as a heap."""
        self._due: dict[int, list[bytes]] = {}

    def add(self, number: int, identifier: bytes) -> None:
        """Add an identifier to tick `number`."""
        self.size += 1
        identifiers = self._due.get(number)
        if identifiers is None:
            self._due[number] = [identifier]
            heappush(self.ticks, number)
        else:
            identifiers.append(identifier)

    def take(self) -> tuple[int, bytes]:
        """Remove an identifier of the first tick; return the tick and the identifier."""
        self.size -= 1
        number = self.ticks[0]
        identifiers = self._due[number]
        identifier = identifiers.pop()
        if not identifiers:
            del self._due[heappop(self.ticks)]
        return number, identifier


class Table(Generic[V]):
    """Values by identifier; `expires` returns the instant from which a value has no effect.

    The order of expiry is exact to one `tick` (seconds). Until the instant that `protected` returns, no later than the
    expiry, an entry is dropped only if no other is left.
    """

    __slots__ = ("_expires", "_protected", "_tick", "idle", "kept", "shards", "size")

    def __init__(
        self, expires: Callable[[V], float], tick: float, protected: Callable[[V], float] | None = None
    ) -> None:
        self.shards: list[dict[bytes, V]] = [{} for _ in range(SHARDS)]
        """The entries, for reading."""
        self.size = 0
        """The number of entries."""
        self.idle = _Schedule()
        """Identifiers by expiry; those that were found protected when there was no room are in `kept` instead."""
        self.kept = _Schedule()
        """Identifiers by the end of their protection."""
        self._expires = expires
        self._protected = protected
        self._tick = tick

    def get(self, identifier: bytes) -> V | None:
        """Return the value of `identifier`, or None."""
        return self.shards[hash(identifier) % SHARDS].get(identifier)

    def put(self, identifier: bytes, value: V) -> None:
        """Replace the value of a known identifier by one that expires no earlier."""
        self.shards[hash(identifier) % SHARDS][identifier] = value

    def batches(self) -> Iterator[tuple[list[tuple[bytes, V]], bool]]:
        """Yield the entries in lists of about `BATCH_SIZE`, each with whether more follow; the last may be empty.

        The table may change between two lists.
        """
        batch: list[tuple[bytes, V]] = []
        for number, shard in enumerate(self.shards, start=1):
            batch += shard.items()
            if len(batch) >= BATCH_SIZE and number < SHARDS:
                yield batch, True
                batch = []
        yield batch, False

    def add(self, identifier: bytes, value: V) -> None:
        """Add an entry for a new identifier."""
        self.shards[hash(identifier) % SHARDS][identifier] = value
        self.size += 1
        self.idle.add(self._number(self._expires(value)), identifier)

    def is_due(self, now: float) -> bool:
        """Return whether an entry may have expired, or its protection ended."""
        idle, kept, tick = self.idle.ticks, self.kept.ticks, self._tick
        is_due = (bool(idle) and idle[0] * tick <= now) or (bool(kept) and kept[0] * tick <= now)
        return is_due and now < _LAST

    def examine(self, now: float) -> bool:
        """Drop the next entry if it has expired, else move it to its new expiry; return whether it was dropped."""
        ticks = self.kept.ticks
        is_kept = bool(ticks) and ticks[0] * self._tick <= now
        number, identifier = (self.kept if is_kept else self.idle).take()
        shard = self.shards[hash(identifier) % SHARDS]
        expiry = self._expires(shard[identifier])
        if expiry > now:
            self.idle.add(max(number + 1, self._number(expiry)), identifier)
            return False
        del shard[identifier]
        self.size -= 1
        return True

    def drop(self, now: float) -> bool | None:
        """Drop the next entry to expire, and return whether it had expired; or find it protected, and return None.

        If all were found protected, the one whose protection ends next is dropped.
        """
        is_idle = self.idle.size > 0
        _, identifier = (self.idle if is_idle else self.kept).take()
        shard = self.shards[hash(identifier) % SHARDS]
        if is_idle and self._protected is not None:
            until = self._protected(shard[identifier])
            if until > now:
                self.kept.add(self._number(until), identifier)
                return None
        self.size -= 1
        return self._expires(shard.pop(identifier)) <= now

    def _number(self, expiry: float) -> int:
        return math.ceil(min(max(expiry, 0.0), _LAST) / self._tick)


class Tables(Generic[V]):
    """Tables with a common maximum of `max_entries` entries.

    In a full table, a new entry replaces an expired one of any table. If none of the entries that are due has expired,
    it replaces the one that expires next of the table with the most entries that are not known to be protected.
    Protected entries are skipped; if `EXAMINED_AT_ONCE` entries are examined in vain, the new entry is not stored. Live
    entries that are dropped, or not stored, are counted in `evicted`.
    """

    def __init__(self, max_entries: int, *, evicted: int = 0) -> None:
        self.size = 0
        """Entries in all tables."""
        self.evicted = evicted
        """Entries dropped before they expired, and new ones that were not stored."""
        self._max_entries = max_entries
        self._tables: list[Table[V]] = []

    def include(self, table: Table[V]) -> Table[V]:
        """Add a table; return it."""
        self._tables.append(table)
        self.size += table.size
        return table

    def add(self, table: Table[V], identifier: bytes, value: V, now: float) -> None:
        """Add an entry for a new identifier to one of the tables, if there is room or an entry to replace."""
        if self.size >= self._max_entries:
            if not self._make_room(now):
                self.evicted += 1
                return
        elif table.is_due(now):
            self._forget(table, now, _EXAMINED_AHEAD)
        table.add(identifier, value)
        self.size += 1

    def forget(self, now: float, limit: int | None = None) -> int:
        """Drop expired entries, examining at most `limit` (None: all that are due); return the number dropped."""
        before, left = self.size, sys.maxsize if limit is None else limit
        for table in self._tables:
            left -= self._forget(table, now, left)
        return before - self.size

    def _forget(self, table: Table[V], now: float, limit: int) -> int:
        """Examine at most `limit` entries that are due; return their number."""
        examined = 0
        while examined < limit and table.is_due(now):
            self.size -= table.examine(now)
            examined += 1
        return examined

    def _make_room(self, now: float) -> bool:
        """Drop entries until there is room for a new one, several if the limit was lowered.

        Returns False if no entry was dropped: those examined are protected.
        """
        before, left = self.size, EXAMINED_AT_ONCE
        for table in self._tables:
            while left and self.size >= self._max_entries and table.is_due(now):
                self.size -= table.examine(now)
                left -= 1
        fullest = max(self._tables, key=_idle_size)
        for _ in range(max(1, left)):
            if self.size < self._max_entries or not self.size:
                break
            if not fullest.idle.size:
                fullest = max(self._tables, key=_idle_size)
                if not fullest.idle.size:
                    fullest = max(self._tables, key=_size)
            had_expired = fullest.drop(now)
            if had_expired is not None:
                self.evicted += not had_expired
                self.size -= 1
        return self.size < before or self.size < self._max_entries


def _idle_size(table: Table[V]) -> int:
    return table.idle.size


def _size(table: Table[V]) -> int:
    return table.size
