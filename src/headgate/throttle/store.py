"""The entries of a throttle, each a failure count and two horizons: finds, expires and bounds them.

This file knows neither statuses nor fields. Instants are seconds since 1970.
"""

from collections import deque
from typing import Final, TypeAlias

import msgspec

from headgate.errors import check_count
from headgate.release import ASAP, advance
from headgate.throttle.policy import Policy
from headgate.throttle.target import WHOLE_ORIGIN, Target, path_matches


class ThrottleEntry(msgspec.Struct, eq=False, gc=False):
    """The failure count of section 5, and its release time: the later of two horizons."""

    origin: str
    path: str
    backoff: float
    """The instant at which the backoff ends; not in the future if there is none."""
    noted: float
    """When a horizon was last set; if `now` is before it, the clock was set back."""
    is_bucket: bool = False
    """Whether it is a bucket of all targets that `path` matches."""
    count: int = -1
    """The failure count, or -1 if it was 0 at the last success.

    A success whose body proves malformed is taken back and counted as a failure, which adds two to the count. With the
    value -1 that is right, too, for a success that could not lower the count.
    """
    retry_after: float = ASAP
    """The instant at which a `Retry-After` ends; separate, since an opt-out does not void it."""
    cause: str = "retry-after"
    """What `retry_after` is from: "retry-after" or "rate-limit"."""
    failed: float = ASAP
    """When the last failure was counted."""

    @property
    def failures(self) -> int:
        """The failure count of section 5."""
        return max(self.count, 0)

    @property
    def release(self) -> float:
        """The later of the two horizons."""
        return self.backoff if self.backoff > self.retry_after else self.retry_after

    def is_expired(self, now: float, policy: Policy) -> bool:
        """Return whether it was released for longer than the policy remembers it."""
        age = now - (self.backoff if self.backoff > self.retry_after else self.retry_after)
        if age < policy.entry_lifetime:  # the minimum for every entry
            return False
        return self.count <= 0 or age >= policy.failing_lifetime

    def succeed(self, now: float) -> None:
        """Count a success: "decreased by one (to no less than 0) for each success"; it neither sets nor ends a hold."""
        if self.count >= 0:
            self.count -= 1
        if now > self.backoff:
            self.backoff = self.noted = now

    def fail(self, now: float, policy: Policy, draw: float) -> None:
        """Count a failure: "increased by one for each failure"; set the release time (section 5, a to d)."""
        self.count = max(self.count, 0) + 1
        delay = policy.delay(self.failures - policy.num_errors_to_ignore, draw)
        # d) release_time = max(now + delay, release_time)
        self.hold_until(advance(now, delay), ASAP, now)

    def hold_until(self, backoff: float, retry_after: float, now: float, cause: str = "retry-after") -> None:
        """Move the ends of the backoff and of the `Retry-After` to later instants; never to earlier ones."""
        if backoff > self.backoff:
            self.backoff, self.noted = backoff, now
        if retry_after > self.retry_after:
            self.retry_after, self.noted, self.cause = retry_after, now, cause

    def follow_clock(self, now: float) -> None:
        """Move every instant back with the clock, which was set back to `now`.

        A hold then lasts as long as when it was set, and never longer.
        """
        self.backoff = advance(now, self.backoff - self.noted)
        self.retry_after = advance(now, self.retry_after - self.noted)
        self.failed = advance(now, self.failed - self.noted)
        self.noted = now

    def absorb(self, other: "ThrottleEntry") -> None:
        """Take the greater count and the later instants of both entries."""
        self.count = max(self.count, other.count)
        self.backoff = max(self.backoff, other.backoff)
        self.retry_after = max(self.retry_after, other.retry_after)
        self.failed = max(self.failed, other.failed)
        self.noted = max(self.noted, other.noted)


MAX_BUCKETS: Final = 64
"""Maximum buckets of one origin."""
_EXAMINED: Final = 2
"""Entries examined for each new one, and dropped if they are expired."""
_EXAMINED_IF_FULL: Final = 16
"""Entries examined for a new one if the store is full; one of them is dropped."""

_EXPIRED, _HEALTHY, _RELEASED, _HELD = range(4)
"""The order in which entries are dropped to make room."""

_Entries: TypeAlias = dict[str, dict[str, ThrottleEntry]]
"""Entries by origin and path."""


class ThrottleStore:
    """At most `max_targets` targets and buckets.

    An entry expires once it has been released for as long as the policy says; from then on it is never found, even if
    it is not dropped yet. To drop expired ones, each response examines one entry, and each new entry two. If the store
    is full, sixteen are examined for a new one, and the least important is dropped. So the cost does not depend on the
    number of entries.
    """

    def __init__(self, policy: Policy, *, max_targets: int) -> None:
        check_count("max_targets", max_targets, 1)
        self.evicted = 0
        """Holds dropped to make room."""
        self.size = 0
        """Number of stored targets and buckets, including expired ones that are not dropped yet."""
        self._policy = policy
        self._max_targets = max_targets
        self._targets: _Entries = {}
        self._buckets: _Entries = {}
        """An origin's buckets are sorted, the longest path first."""
        self._queue: deque[ThrottleEntry] = deque()
        """The entries in the order in which they are examined. Dropped ones stay, and count, until then."""

    def find(self, target: Target, *, now: float, wide: bool = False) -> ThrottleEntry | None:
        """Return the entry of a target's longest bucket, else its own, or its origin's if `wide`; None without it."""
        entry = self._bucket_of(target, now) if self._buckets else None
        if entry is not None:
            return entry
        return self._live(target.origin, WHOLE_ORIGIN if wide else target.path, now)

    def holding(self, target: Target, *, now: float) -> list[ThrottleEntry]:
        """Return all entries that hold a target: its longest bucket or else its own, and its origin's."""
        own = self._bucket_of(target, now) if self._buckets else None
        entries, wide = self._targets.get(target.origin), None
        if entries is not None:
            own, wide = own or entries.get(target.path), entries.get(WHOLE_ORIGIN)
        if own is None and wide is None:  # nearly all requests end here
            return []
        return [entry for entry in (own, wide) if entry is not None and not self._is_expired(entry, now)]

    def found_or_new(self, target: Target, *, now: float, wide: bool = False) -> ThrottleEntry:
        """Return the entry that `find` returns; a new one if there is none."""
        entry = self.find(target, now=now, wide=wide)
        if entry is None:
            entry = ThrottleEntry(target.origin, WHOLE_ORIGIN if wide else target.path, backoff=now, noted=now)
            self._insert(entry)
        return entry

    def declare(self, target: Target, path: str, *, now: float) -> None:
        """Make a bucket of all targets that have the same origin and that `path` matches.

        It starts with the greatest count and the latest horizons of the entries that held its members: their own, which
        are dropped, and that of a wider bucket. Narrower buckets stay as they are. If the origin has the maximum of
        buckets, the new one replaces a bucket that is expired or holds nothing; otherwise nothing happens.
        """
        known = self._buckets.get(target.origin, {}).get(path)
        if known is not None and not self._is_expired(known, now):
            return
        if known is None and not self._has_room_for_bucket(target.origin, now):
            return
        bucket = ThrottleEntry(target.origin, path, backoff=now, noted=now, is_bucket=True)
        members = [
            entry
            for member, entry in self._targets.get(target.origin, {}).items()
            # A fast first test, as there may be very many targets.
            if member.startswith(path) and path_matches(path, member)
        ]
        for entry in (self._bucket_of(Target(target.origin, path), now), *members):
            if entry is not None and not self._is_expired(entry, now):
                bucket.absorb(entry)
        for entry in members:
            self.drop(entry)
        self._insert(bucket)

    def drop(self, entry: ThrottleEntry) -> None:
        """Drop a stored entry."""
        kind = self._buckets if entry.is_bucket else self._targets
        del kind[entry.origin][entry.path]
        if not kind[entry.origin]:
            del kind[entry.origin]
        self.size -= 1

    def drop_origin(self, origin: str) -> None:
        """Drop all entries of an origin."""
        for kind in (self._targets, self._buckets):
            self.size -= len(kind.pop(origin, ()))

    def reset(self) -> None:
        """Drop everything."""
        self._targets.clear()
        self._buckets.clear()
        self._queue.clear()
        self.size = 0

    def forget(self, *, now: float) -> int:
        """Drop expired entries; return their number."""
        expired = [entry for entry in self._queue if self._is_stored(entry) and self._is_expired(entry, now)]
        for entry in expired:
            self.drop(entry)
        self._queue = deque(filter(self._is_stored, self._queue))
        return len(expired)

    def examine_next(self, now: float) -> None:
        """Examine one entry, and drop it if it is expired; for each response."""
        if self._queue:
            entry = self._queue.popleft()
            if not entry.is_expired(now, self._policy):
                self._queue.append(entry)
            elif self._is_stored(entry):
                self.drop(entry)

    def _live(self, origin: str, path: str, now: float) -> ThrottleEntry | None:
        entries = self._targets.get(origin)
        entry = None if entries is None else entries.get(path)
        return None if entry is None or self._is_expired(entry, now) else entry

    def _bucket_of(self, target: Target, now: float) -> ThrottleEntry | None:
        """Return the bucket with the longest path that holds a target."""
        for path, entry in self._buckets.get(target.origin, {}).items():
            if path_matches(path, target.path) and not self._is_expired(entry, now):
                return entry
        return None

    def _insert(self, entry: ThrottleEntry) -> None:
        self._make_room(entry.noted)
        kind = self._buckets if entry.is_bucket else self._targets
        self.size += entry.path not in kind.setdefault(entry.origin, {})  # an expired one is replaced
        kind[entry.origin][entry.path] = entry
        if entry.is_bucket:
            longest_first = sorted(kind[entry.origin].items(), key=lambda item: -len(item[0]))
            kind[entry.origin] = dict(longest_first)
        self._queue.append(entry)

    def _has_room_for_bucket(self, origin: str, now: float) -> bool:
        """Return whether an origin may have one more bucket; drops one without a hold if necessary."""
        buckets = self._buckets.get(origin, {})
        if len(buckets) < MAX_BUCKETS:
            return True
        least = min(buckets.values(), key=lambda bucket: self._rank(bucket, now))
        if self._rank(least, now) > _HEALTHY:
            return False
        self.drop(least)
        return True

    def _make_room(self, now: float) -> None:
        """Examine the next entries: drop expired ones and, if the store is full, otherwise the least important."""
        is_full = len(self._queue) >= self._max_targets
        count = min(_EXAMINED_IF_FULL if is_full else _EXAMINED, len(self._queue))
        seen = [entry for entry in (self._queue.popleft() for _ in range(count)) if self._is_stored(entry)]
        kept = [entry for entry in seen if self._rank(entry, now) != _EXPIRED]
        for entry in seen:
            if entry not in kept:
                self.drop(entry)
        if is_full and len(kept) == count:
            least = min(kept, key=lambda entry: self._rank(entry, now))
            self.evicted += self._rank(least, now) == _HELD
            kept.remove(least)
            self.drop(least)
        self._queue.extend(kept)

    def _is_stored(self, entry: ThrottleEntry) -> bool:
        kind = self._buckets if entry.is_bucket else self._targets
        return kind.get(entry.origin, {}).get(entry.path) is entry

    def _is_expired(self, entry: ThrottleEntry, now: float) -> bool:
        """Return whether an entry is expired, after moving its instants if the clock was set back."""
        if now < entry.noted:
            entry.follow_clock(now)
        return entry.is_expired(now, self._policy)

    def _rank(self, entry: ThrottleEntry, now: float) -> int:
        if entry.is_expired(now, self._policy):
            return _EXPIRED
        if entry.release > now:
            return _HELD
        return _RELEASED if entry.count > 0 else _HEALTHY
