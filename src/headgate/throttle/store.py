"""Where the throttle's entries are kept: found by target, longest bucket first; forgotten, and bounded.

This file knows how an entry's release and failures bear on how long it is kept, and nothing of statuses or fields.

Targets stand on shelves, each origin's all on one, which the hash of the origin picks: so a new bucket looks for its
members on one shelf instead of everywhere, however many targets there are. A dictionary for each origin would do that
too, at several times the memory where many origins have one failing target each.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from headgate.throttle.entry import Entry
from headgate.throttle.target import Target, path_matches

__all__ = ["MOST_BUCKETS", "Store"]

MOST_BUCKETS: Final = 64
"""Of one origin."""

_Places: TypeAlias = dict[int | str, dict[str, Entry]]

_SHELVES: Final = 1024
_SPENT, _HEALTHY, _RELEASED, _HELD = range(4)
"""What is given up first when there is no room."""


class Store:
    """The entries of one throttle, at most `most` of them; lifetimes are seconds.

    An entry is forgotten once it has been released for `failing_lifetime` with failures, `healthy_lifetime` without;
    one that is forgotten is never found, whether it has been dropped yet or not.
    """

    def __init__(self, *, most: int, failing_lifetime: float, healthy_lifetime: float) -> None:
        self.size = 0
        """Targets and buckets, those forgotten and not yet dropped included."""
        self.evicted = 0
        """Live holds dropped for want of room."""
        self.clock_steps = 0
        """Entries moved back in time with a clock that was set back."""
        self._was_thin = False
        """Whether the last pass for room spared the live holds, and so made less of it than it might have."""
        self._most = most
        self._failing_lifetime = failing_lifetime
        self._healthy_lifetime = healthy_lifetime
        self._shelves: _Places = {}
        """From an origin's number to entries by the target's name."""
        self._buckets: _Places = {}
        """From an origin to entries by the bucket's path, the longest first."""

    def find(self, target: Target, *, now: float) -> Entry | None:
        """Give the entry that holds this target: that of its longest bucket, else its own; None where there is none."""
        if self._buckets and (bucket := self.bucket(target, now=now)) is not None:
            return bucket[1]
        shelf = self._shelves.get(hash(target.origin) % _SHELVES)  # _number(), without the call: twice for each request
        entry = shelf.get(target.name) if shelf is not None else None
        return None if entry is None or self._is_spent(entry, now) else entry

    def bucket(self, target: Target, *, now: float) -> tuple[str, Entry] | None:
        """Give the path and the entry of the longest bucket that this target is in."""
        for path, entry in self._buckets.get(target.origin, {}).items():
            if path_matches(path, target.path) and not self._is_spent(entry, now):
                return path, entry
        return None

    def open(self, target: Target, *, now: float) -> Entry:
        """Give the entry that holds this target, a new one where there is none."""
        entry = self.find(target, now=now)
        if entry is None:
            self._make_room(now)
            entry = Entry(now, noted=now)
            self.put(target, entry)
        return entry

    def close(self, target: Target, entry: Entry) -> None:
        """Drop the target's own entry if it is this one; a bucket stays."""
        if self.own(target) is entry:
            self._drop(self._shelves, _number(target.origin), [target.name])

    def own(self, target: Target) -> Entry | None:
        """Give the target's own entry as it stands: in a bucket or not, forgotten or not."""
        return self._shelf(target.origin).get(target.name)

    def put(self, target: Target, entry: Entry) -> None:
        """Keep this entry as the target's own, whether there is room or not."""
        shelf = self._shelves.setdefault(_number(target.origin), {})
        self.size += target.name not in shelf
        shelf[target.name] = entry

    def declare(self, target: Target, path: str, *, now: float) -> None:
        """Hold all the targets of this one's origin that `path` matches together, from now on.

        The bucket starts with the greatest count and the latest horizons that its members were held by: their own,
        which are dropped, and those of the wider bucket they were in. Narrower buckets stay as they are. Where the
        origin has as many buckets as it may, one that is forgotten or holds nobody gives way; else nothing happens.
        """
        known = self.own_bucket(target.origin, path)
        if known is not None and not self._is_spent(known, now):
            return
        if not self._has_place(target.origin, now):
            return
        bucket = Entry(now, noted=now)
        wider = self.bucket(Target(target.origin + path, target.origin, path), now=now)
        if wider is not None:
            bucket.absorb(wider[1])
        self._swallow(target.origin, path, bucket, now)
        self._make_room(now)  # not before: what makes room could be a member
        self.put_bucket(target.origin, path, bucket)

    def own_bucket(self, origin: str, path: str) -> Entry | None:
        """Give the entry of the bucket with just this path as it stands, forgotten or not."""
        return self._buckets.get(origin, {}).get(path)

    def put_bucket(self, origin: str, path: str, entry: Entry) -> None:
        """Keep this entry as a bucket's, whether there is room or not, and whomever else it would hold."""
        others = self._buckets.get(origin, {})
        self.size += path not in others
        paths = others | {path: entry}
        self._buckets[origin] = {name: paths[name] for name in sorted(paths, key=len, reverse=True)}

    def of_origin(self, origin: str) -> Iterator[Entry]:
        """Yield the entries of an origin, buckets and targets."""
        yield from self._buckets.get(origin, {}).values()
        for name, entry in self._shelf(origin).items():
            if name.startswith(origin + "/"):
                yield entry

    def clear(self) -> None:
        """Drop everything."""
        self._shelves.clear()
        self._buckets.clear()
        self.size = 0

    def forget(self, *, now: float) -> int:
        """Drop what is forgotten; give how many."""
        before = self.size
        for places in (self._shelves, self._buckets):
            for key, entries in list(places.items()):
                self._drop(places, key, [name for name, entry in entries.items() if self._is_spent(entry, now)])
        return before - self.size

    def _shelf(self, origin: str) -> dict[str, Entry]:
        """Give the shelf that the targets of an origin stand on, among those of others."""
        return self._shelves.get(_number(origin), {})

    def _swallow(self, origin: str, path: str, bucket: Entry, now: float) -> None:
        """Drop the targets that `path` matches, their counts and horizons into `bucket`."""
        shelf, start = self._shelf(origin), len(origin)
        members = [name for name in shelf if name.startswith(origin) and path_matches(path, name[start:])]
        for name in members:
            if not self._is_spent(shelf[name], now):
                bucket.absorb(shelf[name])
        self._drop(self._shelves, _number(origin), members)

    def _has_place(self, origin: str, now: float) -> bool:
        """Say whether an origin may have one bucket more, after making place where that costs nobody a hold."""
        buckets = self._buckets.get(origin, {})
        if len(buckets) < MOST_BUCKETS:
            return True
        rank, path = min((self._rank(entry, now), path) for path, entry in buckets.items())
        if rank <= _HEALTHY:
            self._drop(self._buckets, origin, [path])
        return rank <= _HEALTHY

    def _is_spent(self, entry: Entry, now: float) -> bool:
        """Say whether an entry is forgotten, once its instants have followed the clock; asked before any use of one."""
        if now < entry.noted:
            self.clock_steps += entry.follow_clock(now)
        return now - entry.release >= (self._failing_lifetime if entry.count > 0 else self._healthy_lifetime)

    def _rank(self, entry: Entry, now: float) -> int:
        if self._is_spent(entry, now):
            return _SPENT
        if entry.release > now:
            return _HELD
        return _RELEASED if entry.count > 0 else _HEALTHY

    def _make_room(self, now: float) -> None:
        """Where there is none, drop what is forgotten or else a sixteenth of everything: one pass for many arrivals.

        The healthy go before those that fail and are released, and no live hold where one of these is left; unless
        they are so few that the next arrivals would take a pass each.
        """
        if self.size < self._most:
            return
        wanted = self._most // 16 + 1
        ranked: list[list[tuple[_Places, int | str, str]]] = [[], [], [], []]
        for places in (self._shelves, self._buckets):
            for key, entries in places.items():
                for name, entry in entries.items():
                    found = ranked[self._rank(entry, now)]
                    if len(found) < wanted:
                        found.append((places, key, name))
        spent, healthy, released, held = ranked
        chosen = (spent + healthy + released)[:wanted]
        given_up = held[: wanted - len(chosen)] if self._was_thin or not chosen else []
        self.evicted += len(given_up)
        chosen += given_up
        self._was_thin = len(chosen) < wanted
        for places, key, name in chosen:
            self._drop(places, key, [name])

    def _drop(self, places: _Places, key: int | str, names: list[str]) -> None:
        if not names:
            return
        entries = places[key]
        for name in names:
            del entries[name]
        self.size -= len(names)
        if not entries:
            del places[key]


def _number(origin: str) -> int:
    return hash(origin) % _SHELVES
