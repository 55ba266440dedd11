"""Where a throttle keeps its entries: what it asks of a store, and the store in memory.

This file knows how entries are found, forgotten and bounded, and nothing of statuses or fields. What an entry becomes
is said by a `Change`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import msgspec

from headgate.errors import ConfigurationError
from headgate.throttle.entry import (
    BUCKET,
    BUDGET,
    KINDS,
    OPT_OUT,
    TARGET,
    Change,
    Cleared,
    ClockSetBack,
    Declared,
    Dropped,
    Entry,
    Key,
    Response,
    applied,
)
from headgate.throttle.policy import Policy
from headgate.throttle.target import Target, path_matches

MAX_BUCKETS: Final = 64
"""Of one origin."""
_LOOKS: Final = 2
"""Entries looked at for each new one, and dropped if they are forgotten."""
_LOOKS_FOR_ROOM: Final = 16
"""Entries looked at where one of them has to go."""

_MIN_STEP: Final = 60.0
"""Seconds: `on_change` is not called for a clock that was set back by less, since another process with the same clock
may have read it after this one, and its entry may be there first."""

_SPENT, _HEALTHY, _RELEASED, _HELD = range(4)
"""In this order entries are dropped to make room."""

_Entries: TypeAlias = dict[str, dict[str, Entry]]
"""From an origin to entries by path."""


class Counters(msgspec.Struct):
    """What a store had to do to entries that were in use."""

    evicted: int = 0
    """Live holds dropped for want of room."""
    opt_outs_evicted: int = 0
    """Hosts whose opting out was dropped for want of room."""
    clock_steps: int = 0
    """Entries moved back in time with a clock that was set back."""


class Store(Protocol):
    """What a throttle asks of the place where it keeps its entries; it reads those that it is given, and no more."""

    @property
    def counters(self) -> Counters:
        """What it had to do to entries that were in use."""

    def __len__(self) -> int:
        """Return how many targets and buckets are stored, those forgotten and not yet dropped included."""

    def find(self, target: Target, *, now: float) -> Entry | None:
        """Return the entry that holds a target: that of its longest bucket, else its own; None where there is none."""

    def get(self, key: Key) -> Entry | None:
        """Return the entry under a key as it stands: in a bucket or not, forgotten or not."""

    def change(self, key: Key, change: Change) -> None:
        """Apply a change to the entry under a key."""

    def record(self, target: Target, response: Response) -> None:
        """Apply a response to the entry that holds a target."""

    def declare(self, target: Target, path: str, *, now: float) -> None:
        """Hold all targets of this one's origin that `path` matches together, from now on."""

    def clear_backoff(self, origin: str, *, now: float, end: Callable[[], float]) -> None:
        """End each backoff of an origin at the instant that `end` returns for it, if it would hold for longer."""

    def reset(self) -> None:
        """Drop everything but the hosts that opted out."""

    def forget(self, *, now: float) -> int:
        """Drop what is forgotten; return how many entries."""


class MemoryStore:
    """A store of at most `max_targets` targets and buckets, as many budgets, and `max_opt_outs` hosts.

    An entry is forgotten once it has been released for as long as the policy says; one that is forgotten is never
    found, whether it has been dropped yet or not. Each response looks at one entry, and each new entry at two others,
    to drop those that are forgotten; a new one looks at sixteen where there is no room, and drops the one that is
    needed least: nothing takes longer than that, however many there are. `on_change` is called with each key, what
    happened, and the entry that came of it; `counters` are those to count in.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        max_targets: int,
        max_opt_outs: int,
        on_change: Callable[[Key, Change, Entry | None], None] | None = None,
        counters: Counters | None = None,
    ) -> None:
        for name, limit in (("max_targets", max_targets), ("max_opt_outs", max_opt_outs)):
            if limit < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {limit!r}")
        self.counters = Counters() if counters is None else counters
        """What it had to do to entries that were in use."""
        self._size = 0
        self._policy = policy
        self._limits = {BUDGET: max_targets, OPT_OUT: max_opt_outs}
        self._max_targets = max_targets
        self._on_change = on_change
        self._entries: tuple[_Entries, ...] = tuple({} for _ in KINDS)
        """By kind; an origin's buckets are in order, the longest path first."""
        self._queue: deque[Entry] = deque()
        """Targets and buckets in the order in which they are looked at next; also some that were dropped, for which
        there is no room either until they are looked at."""

    def __len__(self) -> int:
        """Return how many targets and buckets are stored, those forgotten and not yet dropped included."""
        return self._size

    def find(self, target: Target, *, now: float) -> Entry | None:
        """Return the entry that holds a target: that of its longest bucket, else its own; None where there is none."""
        entry = self.bucket(target, now=now) if self._entries[BUCKET] else None
        if entry is None:
            entry = self._entries[TARGET].get(target.origin, {}).get(target.path)
        return None if entry is None or self._is_spent(entry, now) else entry

    def bucket(self, target: Target, *, now: float) -> Entry | None:
        """Return the longest bucket that holds a target."""
        for path, entry in self._entries[BUCKET].get(target.origin, {}).items():
            if path_matches(path, target.path) and not entry.is_spent(now, self._policy):
                return entry
        return None

    def get(self, key: Key) -> Entry | None:
        """Return the entry under a key as it stands: in a bucket or not, forgotten or not."""
        return self._entries[key.kind].get(key.origin, {}).get(key.path)

    def put(self, key: Key, entry: Entry | None) -> None:
        """Store an entry under its key as it stands, whether or not one was known; None drops that."""
        known = self.get(key)
        if entry is known:
            return
        if entry is None:
            self._drop(key)
        elif known is None:
            self._insert(entry)
        else:
            known.assign(entry)

    def apply(self, key: Key, change: Change) -> Entry | None:
        """Apply a change to the entry under a key, without calling `on_change`; return what the entry is then."""
        entry = applied(change, self.get(key), key, self._policy)
        self.put(key, entry)
        return entry

    def change(self, key: Key, change: Change) -> None:
        """Apply a change to the entry under a key."""
        entry = self.apply(key, change)
        if self._on_change is not None:
            self._on_change(key, change, entry)

    def record(self, target: Target, response: Response) -> None:
        """Count a response for the entry that holds a target."""
        self._forget_next(response.now)
        entry = self.find(target, now=response.now)
        if entry is None:
            if response.makes_entry:
                self.change(Key(TARGET, target.origin, target.path), response)
            return
        # What `change` does, for the entry that has just been found: this is done for every response.
        stays = response.count(entry, self._policy)
        if stays is None:
            self._drop(entry.key)
        if self._on_change is not None:
            self._on_change(entry.key, response, stays)

    def declare(self, target: Target, path: str, *, now: float) -> None:
        """Hold all targets of this one's origin that `path` matches together, from now on.

        The bucket starts with the greatest count and the latest horizons that its members were held by: their own,
        which are dropped, and those of the wider bucket they were in. Narrower buckets stay as they are. Where the
        origin has as many buckets as it may, one that is forgotten or holds nothing gives way; else nothing happens.
        """
        key = Key(BUCKET, target.origin, path)
        known = self.get(key)
        if known is not None and not self._is_spent(known, now):
            return
        if known is None and not self._has_place(target.origin, now):
            return
        start = Entry(now, noted=now)
        members = self._members(key)
        for entry in (self.bucket(Target(target.origin, path), now=now), *members):
            if entry is not None and not self._is_spent(entry, now):
                start.absorb(entry)
        for member in members:
            self._drop(member.key)
        self.change(key, Declared(now=now, start=start))

    def clear_backoff(self, origin: str, *, now: float, end: Callable[[], float]) -> None:
        """End each backoff of an origin at the instant that `end` returns for it, if it would hold for longer."""
        for kind in (BUCKET, TARGET):
            for entry in list(self._entries[kind].get(origin, {}).values()):
                if not self._is_spent(entry, now) and entry.backoff > now:
                    self.change(entry.key, Cleared(now=now, until=end()))

    def reset(self) -> None:
        """Drop everything but the hosts that opted out."""
        for kind in (TARGET, BUCKET, BUDGET):
            self._entries[kind].clear()
        self._queue.clear()
        self._size = 0

    def forget(self, *, now: float) -> int:
        """Drop what is forgotten; return how many entries."""
        spent = [entry for entry in self._queue if self._is_stored(entry) and self._is_spent(entry, now)]
        for entry in spent:
            self._drop(entry.key)
        self._queue = deque(filter(self._is_stored, self._queue))
        return len(spent)

    def _forget_next(self, now: float) -> None:
        """Look at one entry and drop it if it is forgotten, so that nothing else is needed to forget."""
        queue = self._queue
        if not queue:
            return
        if queue[0].is_spent(now, self._policy):
            entry = queue.popleft()
            if self._is_stored(entry):
                self._drop(entry.key)
        else:
            queue.rotate(-1)

    def _insert(self, entry: Entry) -> None:
        if entry.kind == BUCKET and not self._may_have_bucket(entry.origin):
            return
        self._make_room(entry.kind, entry.noted)
        entries = self._entries[entry.kind].setdefault(entry.origin, {})
        entries[entry.path] = entry
        if entry.kind == BUCKET:
            paths = sorted(entries, key=len, reverse=True)
            self._entries[BUCKET][entry.origin] = {path: entries[path] for path in paths}
        if entry.kind <= BUCKET:
            self._queue.append(entry)
            self._size += 1

    def _members(self, bucket: Key) -> list[Entry]:
        """Return the targets with entries of their own that a bucket's path matches."""
        targets = self._entries[TARGET].get(bucket.origin, {})
        start = bucket.path  # tested first, as there may be very many
        return [entry for path, entry in targets.items() if path.startswith(start) and path_matches(start, path)]

    def _may_have_bucket(self, origin: str) -> bool:
        return len(self._entries[BUCKET].get(origin, {})) < MAX_BUCKETS

    def _has_place(self, origin: str, now: float) -> bool:
        """Return whether an origin may have one bucket more, after making place where that drops no hold."""
        if self._may_have_bucket(origin):
            return True
        buckets = self._entries[BUCKET][origin]
        least = min(buckets.values(), key=lambda bucket: self._rank(bucket, now))
        if self._rank(least, now) > _HEALTHY:
            return False
        self.change(least.key, Dropped(now=now))
        return True

    def _make_room(self, kind: int, now: float) -> None:
        """Make room for one entry more, in a bounded number of steps."""
        if kind <= BUCKET:
            self._look_around(now)
            return
        others = self._entries[kind]
        if len(others) >= self._limits[kind]:
            del others[next(iter(others))]
            self.counters.opt_outs_evicted += kind == OPT_OUT

    def _look_around(self, now: float) -> None:
        """Look at the next few entries: drop those that are forgotten, and the one needed least where it is full."""
        is_full = len(self._queue) >= self._max_targets
        looks = min(_LOOKS_FOR_ROOM if is_full else _LOOKS, len(self._queue))
        seen = [entry for entry in (self._queue.popleft() for _ in range(looks)) if self._is_stored(entry)]
        ranks = [self._rank(entry, now) for entry in seen]
        kept = [entry for entry, rank in zip(seen, ranks, strict=True) if rank != _SPENT]
        if is_full and len(kept) == looks:
            least = ranks.index(min(ranks))
            self.counters.evicted += ranks[least] == _HELD
            self._drop(kept.pop(least).key)
        for entry, rank in zip(seen, ranks, strict=True):
            if rank == _SPENT:
                self._drop(entry.key)
        self._queue.extend(kept)

    def _is_stored(self, entry: Entry) -> bool:
        return self._entries[entry.kind].get(entry.origin, {}).get(entry.path) is entry

    def _is_spent(self, entry: Entry, now: float) -> bool:
        """Return whether an entry is forgotten, once its instants have followed the clock; asked before using one."""
        if now < entry.noted:
            self._follow_clock(entry, now)
        return entry.is_spent(now, self._policy)

    def _follow_clock(self, entry: Entry, now: float) -> None:
        change = ClockSetBack(now=now, horizons=entry.horizons)
        step = entry.noted - now
        self.counters.clock_steps += entry.follow_clock(now)
        if self._on_change is not None and step >= _MIN_STEP:
            self._on_change(entry.key, change, entry)

    def _rank(self, entry: Entry, now: float) -> int:
        if entry.is_spent(now, self._policy):
            return _SPENT
        if entry.release > now:
            return _HELD
        return _RELEASED if entry.count > 0 else _HEALTHY

    def _drop(self, key: Key) -> None:
        entries = self._entries[key.kind][key.origin]
        del entries[key.path]
        if not entries:
            del self._entries[key.kind][key.origin]
        self._size -= key.kind <= BUCKET
