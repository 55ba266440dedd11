"""Stores of a throttle's entries: the protocol, and the store in memory.

This file finds, expires and bounds entries; it knows neither statuses nor fields. A `Change` determines what an entry
becomes.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import msgspec

from headgate.errors import check_count
from headgate.release import ASAP
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
    EntryKey,
    ResponseReceived,
    ThrottleEntry,
    applied,
)
from headgate.throttle.policy import Policy
from headgate.throttle.target import Target, path_matches

MAX_BUCKETS: Final = 64
"""Maximum buckets of one origin."""
_EXAMINED: Final = 2
"""Entries examined for each new one, and dropped if they are expired."""
_EXAMINED_IF_FULL: Final = 16
"""Entries examined for a new one if the store is full; one of them is dropped."""

_MIN_STEP: Final = 60.0
"""Seconds: `on_change` is not called if the clock was set back by less. Another process with the same clock may have
read it after this one, and have stored its entry before."""

_EXPIRED, _HEALTHY, _RELEASED, _HELD = range(4)
"""The order in which entries are dropped to make room."""

_Entries: TypeAlias = dict[str, dict[str, ThrottleEntry]]
"""Entries by origin and path."""


class Counters(msgspec.Struct):
    """How often a store dropped or changed entries that were in use."""

    evicted: int = 0
    """Holds dropped to make room."""
    opt_outs_evicted: int = 0
    """Hosts whose opt-out was dropped to make room."""
    clock_steps: int = 0
    """Entries whose instants moved with a clock that was set back."""


class Store(Protocol):
    """Storage of a throttle's entries. The throttle reads the entries that it gets, and changes none."""

    @property
    def counters(self) -> Counters:
        """How often entries in use were dropped or changed."""

    @property
    def size(self) -> int:
        """Number of stored targets and buckets, including expired ones that are not dropped yet."""

    def find(self, target: Target, *, now: float) -> ThrottleEntry | None:
        """Return the entry that holds a target, of its longest bucket or else its own; None without one."""

    def get(self, key: EntryKey) -> ThrottleEntry | None:
        """Return the entry of a key, even if a bucket holds its target, and even if it is expired."""

    def change(self, key: EntryKey, change: Change) -> None:
        """Apply a change to the entry of a key."""

    def record(self, target: Target, response: ResponseReceived) -> None:
        """Apply a response to the entry that holds a target."""

    def declare(self, target: Target, path: str, *, now: float) -> None:
        """Make a bucket of all targets that have the same origin and that `path` matches."""

    def clear_backoff(self, origin: str, *, now: float, end: Callable[[], float]) -> None:
        """End each backoff of an origin at the instant that `end` returns for it, if it would last longer."""

    def reset(self) -> None:
        """Drop everything except the hosts that opted out."""

    def forget(self, *, now: float) -> int:
        """Drop expired entries; return their number."""


class MemoryStore:
    """A store of at most `max_targets` targets and buckets, as many budgets, and `max_opt_outs` hosts.

    An entry expires once it has been released for as long as the policy says; from then on it is never found, even if
    it is not dropped yet. To drop expired ones, each response examines one entry, and each new entry two; responses
    examine an entry that has not expired no more often than once in a lifetime. If the store is full, sixteen are
    examined for a new one, and the least important is dropped. So the cost does not depend on the number of entries.
    `on_change` is called with the key, the change and the new entry; `counters` are the counters to use.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        max_targets: int,
        max_opt_outs: int,
        on_change: Callable[[EntryKey, Change, ThrottleEntry | None], None] | None = None,
        counters: Counters | None = None,
    ) -> None:
        for name, limit in (("max_targets", max_targets), ("max_opt_outs", max_opt_outs)):
            check_count(name, limit, 1)
        self.counters = Counters() if counters is None else counters
        """How often entries in use were dropped or changed."""
        self.size = 0
        """Number of stored targets and buckets, including expired ones that are not dropped yet."""
        self._policy = policy
        self._limits = {BUDGET: max_targets, OPT_OUT: max_opt_outs}
        self._max_targets = max_targets
        self._on_change = on_change
        self._entries: tuple[_Entries, ...] = tuple({} for _ in KINDS)
        """By kind. An origin's buckets are sorted, the longest path first."""
        self._targets, self._buckets = self._entries[TARGET], self._entries[BUCKET]
        self._examined = ASAP
        """When a response last examined an entry that had not expired."""
        self._pause = 0.0
        """Seconds after that in which responses examine none."""
        self._queue: deque[ThrottleEntry] = deque()
        """Targets and buckets in the order in which they are examined. Dropped ones stay, and count, until then."""

    def find(self, target: Target, *, now: float) -> ThrottleEntry | None:
        """Return the entry that holds a target, of its longest bucket or else its own; None without one."""
        entry = self.bucket(target, now=now) if self._buckets else None
        if entry is None:
            entries = self._targets.get(target.origin)
            entry = None if entries is None else entries.get(target.path)
            if entry is None:
                return None
        if now < entry.noted:
            self._follow_clock(entry, now)
        return None if entry.is_expired(now, self._policy) else entry

    def bucket(self, target: Target, *, now: float) -> ThrottleEntry | None:
        """Return the bucket with the longest path that holds a target."""
        for path, entry in self._entries[BUCKET].get(target.origin, {}).items():
            if path_matches(path, target.path) and not entry.is_expired(now, self._policy):
                return entry
        return None

    def get(self, key: EntryKey) -> ThrottleEntry | None:
        """Return the entry of a key, even if a bucket holds its target, and even if it is expired."""
        return self._entries[key.kind].get(key.origin, {}).get(key.path)

    def put(self, key: EntryKey, entry: ThrottleEntry | None) -> None:
        """Set the entry of a key; None drops it."""
        known = self.get(key)
        if entry is known:
            return
        if entry is None:
            self._drop(key)
        elif known is None:
            self._insert(entry)
        else:
            known.assign(entry)

    def apply(self, key: EntryKey, change: Change) -> ThrottleEntry | None:
        """Apply a change to the entry of a key without calling `on_change`; return the new entry."""
        entry = applied(change, self.get(key), key, self._policy)
        self.put(key, entry)
        return entry

    def change(self, key: EntryKey, change: Change) -> None:
        """Apply a change to the entry of a key."""
        entry = self.apply(key, change)
        if self._on_change is not None:
            self._on_change(key, change, entry)

    def record(self, target: Target, response: ResponseReceived) -> None:
        """Apply a response to the entry that holds a target."""
        now = response.now
        if abs(now - self._examined) >= self._pause:
            self._forget_next(now)
        entry = self.find(target, now=now)
        if entry is None:
            if response.makes_entry:
                self.change(EntryKey(TARGET, target.origin, target.path), response)
            return
        # As `change` does, but with the entry found above: this runs for every response.
        stays = response.count(entry, self._policy)
        if stays is None:
            self._drop(entry.key)
        if self._on_change is not None:
            self._on_change(entry.key, response, stays)

    def declare(self, target: Target, path: str, *, now: float) -> None:
        """Make a bucket of all targets that have the same origin and that `path` matches.

        It starts with the greatest count and the latest horizons of the entries that held its members: their own, which
        are dropped, and that of a wider bucket. Narrower buckets stay as they are. If the origin has the maximum of
        buckets, the new one replaces a bucket that is expired or holds nothing; otherwise nothing happens.
        """
        key = EntryKey(BUCKET, target.origin, path)
        known = self.get(key)
        if known is not None and not self._is_expired(known, now):
            return
        if known is None and not self._has_room_for_bucket(target.origin, now):
            return
        start = ThrottleEntry(now, noted=now)
        members = self._members(key)
        for entry in (self.bucket(Target(target.origin, path), now=now), *members):
            if entry is not None and not self._is_expired(entry, now):
                start.absorb(entry)
        for member in members:
            self._drop(member.key)
        self.change(key, Declared(now=now, start=start))

    def clear_backoff(self, origin: str, *, now: float, end: Callable[[], float]) -> None:
        """End each backoff of an origin at the instant that `end` returns for it, if it would last longer."""
        for kind in (BUCKET, TARGET):
            for entry in list(self._entries[kind].get(origin, {}).values()):
                if not self._is_expired(entry, now) and entry.backoff > now:
                    self.change(entry.key, Cleared(now=now, until=end()))

    def reset(self) -> None:
        """Drop everything except the hosts that opted out."""
        for kind in (TARGET, BUCKET, BUDGET):
            self._entries[kind].clear()
        self._queue.clear()
        self.size = 0

    def forget(self, *, now: float) -> int:
        """Drop expired entries; return their number."""
        expired = [entry for entry in self._queue if self._is_stored(entry) and self._is_expired(entry, now)]
        for entry in expired:
            self._drop(entry.key)
        self._queue = deque(filter(self._is_stored, self._queue))
        return len(expired)

    def _forget_next(self, now: float) -> None:
        """Examine one entry, and drop it if it is expired."""
        queue = self._queue
        if queue and queue[0].is_expired(now, self._policy):
            entry = queue.popleft()
            if self._is_stored(entry):
                self._drop(entry.key)
        else:
            queue.rotate(-1)
            self._examined = now
            self._pause = self._policy.entry_lifetime / max(len(queue), 1)

    def _insert(self, entry: ThrottleEntry) -> None:
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
            self.size += 1

    def _members(self, bucket: EntryKey) -> list[ThrottleEntry]:
        """Return the entries of targets that a bucket's path matches."""
        targets = self._entries[TARGET].get(bucket.origin, {})
        start = bucket.path  # a fast first test, as there may be very many targets
        return [entry for path, entry in targets.items() if path.startswith(start) and path_matches(start, path)]

    def _may_have_bucket(self, origin: str) -> bool:
        return len(self._entries[BUCKET].get(origin, {})) < MAX_BUCKETS

    def _has_room_for_bucket(self, origin: str, now: float) -> bool:
        """Return whether an origin may have one more bucket; drops one without a hold if necessary."""
        if self._may_have_bucket(origin):
            return True
        buckets = self._entries[BUCKET][origin]
        least = min(buckets.values(), key=lambda bucket: self._rank(bucket, now))
        if self._rank(least, now) > _HEALTHY:
            return False
        self.change(least.key, Dropped(now=now))
        return True

    def _make_room(self, kind: int, now: float) -> None:
        """Make room for one more entry, in a bounded number of steps."""
        if kind <= BUCKET:
            self._drop_expired_or_least(now)
            return
        others = self._entries[kind]
        if len(others) >= self._limits[kind]:
            del others[next(iter(others))]
            self.counters.opt_outs_evicted += kind == OPT_OUT

    def _drop_expired_or_least(self, now: float) -> None:
        """Examine the next entries: drop expired ones and, if the store is full, otherwise the least important."""
        is_full = len(self._queue) >= self._max_targets
        count = min(_EXAMINED_IF_FULL if is_full else _EXAMINED, len(self._queue))
        seen = [entry for entry in (self._queue.popleft() for _ in range(count)) if self._is_stored(entry)]
        ranks = [self._rank(entry, now) for entry in seen]
        kept = [entry for entry, rank in zip(seen, ranks, strict=True) if rank != _EXPIRED]
        if is_full and len(kept) == count:
            least = ranks.index(min(ranks))
            self.counters.evicted += ranks[least] == _HELD
            self._drop(kept.pop(least).key)
        for entry, rank in zip(seen, ranks, strict=True):
            if rank == _EXPIRED:
                self._drop(entry.key)
        self._queue.extend(kept)

    def _is_stored(self, entry: ThrottleEntry) -> bool:
        return self._entries[entry.kind].get(entry.origin, {}).get(entry.path) is entry

    def _is_expired(self, entry: ThrottleEntry, now: float) -> bool:
        """Return whether an entry is expired, after moving its instants if the clock was set back."""
        if now < entry.noted:
            self._follow_clock(entry, now)
        return entry.is_expired(now, self._policy)

    def _follow_clock(self, entry: ThrottleEntry, now: float) -> None:
        change = ClockSetBack(now=now, horizons=entry.horizons)
        step = entry.noted - now
        self.counters.clock_steps += entry.follow_clock(now)
        if self._on_change is not None and step >= _MIN_STEP:
            self._on_change(entry.key, change, entry)

    def _rank(self, entry: ThrottleEntry, now: float) -> int:
        if entry.is_expired(now, self._policy):
            return _EXPIRED
        if entry.release > now:
            return _HELD
        return _RELEASED if entry.count > 0 else _HEALTHY

    def _drop(self, key: EntryKey) -> None:
        entries = self._entries[key.kind][key.origin]
        del entries[key.path]
        if not entries:
            del self._entries[key.kind][key.origin]
        self.size -= key.kind <= BUCKET
