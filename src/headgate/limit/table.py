"""Tables of values by identifier that expire, under one bound, where no operation touches every entry.

This file knows nothing of rules, holds or clocks. Untrusted input chooses the identifiers, so the cost of one more
must not grow with their number. A dictionary that grows copies all its entries, which takes 0.2 s for a million: a
table is `SHARDS` small ones. Looking for expired entries one by one takes as long: a table keeps its identifiers in
lists, one for each `tick` in which entries expire. An entry whose expiry was put off stays in its list until that
list is due, and moves on then.
"""

import math
import sys
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

__all__ = ["EXAMINED_AT_ONCE", "PIECE", "SHARDS", "Table", "Tables"]

SHARDS = 251
"""Dictionaries in a table; with a million entries each copies 4,000 when it grows.

`hash(identifier) % SHARDS` is the index of one. A prime, since a dictionary places its entries by the low bits of the
same hash."""

EXAMINED_AT_ONCE = 16
"""Entries examined to make room for one more."""

PIECE = 4_096
"""Entries that are looked at without a pause, by those who look at all: half a millisecond."""

_EXAMINED_AHEAD = 2
"""Entries examined for each new one while there is room: more than one, so that expired entries do not accumulate."""

_LAST = 1e15
"""Seconds. Later expiries, infinity included, share one list, which is never due."""

V = TypeVar("V")


class Table(Generic[V]):
    """Values by identifier; `expires` gives the instant from which a value means nothing.

    Entries that expire within one `tick` (seconds) are not told apart when the next one to expire is dropped.
    """

    __slots__ = ("_due", "_expires", "_tick", "_ticks", "shards", "size")

    def __init__(self, expires: Callable[[V], float], tick: float) -> None:
        self.shards: list[dict[bytes, V]] = [{} for _ in range(SHARDS)]
        """The entries, for those who only look."""
        self.size = 0
        """How many entries there are."""
        self._expires = expires
        self._tick = tick
        # Each entry's identifier stands once in the list of a tick; the ticks that have a list are a heap.
        self._due: dict[int, list[bytes]] = {}
        self._ticks: list[int] = []

    def get(self, identifier: bytes) -> V | None:
        """Return the value of `identifier`, None when there is none."""
        return self.shards[hash(identifier) % SHARDS].get(identifier)

    def put(self, identifier: bytes, value: V) -> None:
        """Replace the value of an identifier that has one, by one that expires no earlier."""
        self.shards[hash(identifier) % SHARDS][identifier] = value

    def pieces(self) -> Iterator[tuple[list[tuple[bytes, V]], bool]]:
        """Yield the entries in lists of about `PIECE`, each with whether more follow; the last one may be empty.

        The table may change between two of them.
        """
        piece: list[tuple[bytes, V]] = []
        for number, shard in enumerate(self.shards, start=1):
            piece += shard.items()
            if len(piece) >= PIECE and number < SHARDS:
                yield piece, True
                piece = []
        yield piece, False

    def add(self, identifier: bytes, value: V) -> None:
        """Add an entry for an identifier that has none."""
        self.shards[hash(identifier) % SHARDS][identifier] = value
        self.size += 1
        self._schedule(identifier, self._number(self._expires(value)))

    def is_due(self, now: float) -> bool:
        """Whether an entry's expiry, as it was last looked at, has passed."""
        return bool(self._ticks) and self._ticks[0] * self._tick <= now < _LAST

    def examine(self, now: float) -> bool:
        """Drop the entry that is due next if it has expired, or put it off to its new expiry; say whether it went."""
        number, identifier = self._take()
        shard = self.shards[hash(identifier) % SHARDS]
        expiry = self._expires(shard[identifier])
        if expiry > now:
            self._schedule(identifier, max(number + 1, self._number(expiry)))
            return False
        del shard[identifier]
        self.size -= 1
        return True

    def drop(self, now: float) -> bool:
        """Drop the entry that is due next; say whether it had expired."""
        _, identifier = self._take()
        value = self.shards[hash(identifier) % SHARDS].pop(identifier)
        self.size -= 1
        return self._expires(value) <= now

    def _number(self, expiry: float) -> int:
        return math.ceil(min(max(expiry, 0.0), _LAST) / self._tick)

    def _schedule(self, identifier: bytes, number: int) -> None:
        identifiers = self._due.get(number)
        if identifiers is None:
            self._due[number] = [identifier]
            heappush(self._ticks, number)
        else:
            identifiers.append(identifier)

    def _take(self) -> tuple[int, bytes]:
        number = self._ticks[0]
        identifiers = self._due[number]
        identifier = identifiers.pop()
        if not identifiers:
            del self._due[heappop(self._ticks)]
        return number, identifier


class Tables(Generic[V]):
    """Tables that hold at most `most` entries together.

    One more entry takes the place of one that has expired, whichever table it is in. When `EXAMINED_AT_ONCE` entries
    that were due have all been put off, or none is due, it takes the place of the entry of the fullest table that
    expires next (counted in `evicted`).
    """

    def __init__(self, most: int, *, evicted: int = 0) -> None:
        self.size = 0
        """Entries in all tables."""
        self.evicted = evicted
        """Entries dropped before they expired."""
        self._most = most
        self._tables: list[Table[V]] = []

    def include(self, table: Table[V]) -> Table[V]:
        """Count a table's entries from now on; return it."""
        self._tables.append(table)
        self.size += table.size
        return table

    def add(self, table: Table[V], identifier: bytes, value: V, now: float) -> None:
        """Add an entry to one of the tables, for an identifier that it does not have."""
        if self.size >= self._most:
            self._make_room(now)
        elif table.is_due(now):
            self._forget(table, now, _EXAMINED_AHEAD)
        table.add(identifier, value)
        self.size += 1

    def forget(self, now: float, most: int | None = None) -> int:
        """Drop expired entries, examining at most `most` (None: all that are due); return how many were dropped."""
        before, left = self.size, sys.maxsize if most is None else most
        for table in self._tables:
            left -= self._forget(table, now, left)
        return before - self.size

    def _forget(self, table: Table[V], now: float, most: int) -> int:
        """Examine at most `most` entries that are due; return how many were."""
        examined = 0
        while examined < most and table.is_due(now):
            self.size -= table.examine(now)
            examined += 1
        return examined

    def _make_room(self, now: float) -> None:
        """Drop entries until there is room for one more; several where the bound is lower than it was."""
        left = EXAMINED_AT_ONCE
        for table in self._tables:
            while left and self.size >= self._most and table.is_due(now):
                self.size -= table.examine(now)
                left -= 1
        for _ in range(max(1, left)):
            if self.size < self._most or not self.size:
                return
            fullest = max(self._tables, key=_size)
            self.evicted += not fullest.drop(now)
            self.size -= 1


def _size(table: Table[V]) -> int:
    return table.size
