"""Changes to what a throttle remembers, as values: each says what becomes of the entry under one key.

A store in memory applies a change to its own entry. A store that is shared notes it as well, and applies it again to
the entry that other processes may have changed meanwhile: so it is the same rule in both, with the same draw, and no
failure counted by one process overwrites that of another.
"""

import enum
from typing import Protocol

import msgspec

from headgate.release import ASAP, advance
from headgate.throttle.entry import TARGET, Entry, Key
from headgate.throttle.policy import Policy


class Change(Protocol):
    """One change to the entry under one key."""

    @property
    def now(self) -> float:
        """When it happened."""

    def apply(self, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:
        """Change an entry, or return a new one; None for one that is not stored."""


def applied(change: Change, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:
    """Apply a change to what is stored under a key, where what is forgotten counts as not stored."""
    if entry is not None and entry.is_spent(change.now, policy):
        entry = None
    return change.apply(entry, key, policy)


class Outcome(enum.Enum):
    """What a response means for the failure count."""

    FAILURE = enum.auto()
    SUCCESS = enum.auto()
    MALFORMED = enum.auto()
    """The body of what was counted as a success proves malformed: it was a failure."""
    NEITHER = enum.auto()


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response was received."""

    now: float
    outcome: Outcome
    draw: float = 0.0
    """The jitter's."""
    sent: float | None = None
    """When the request was sent, where one sent before the last failure was counted is not to count again."""
    retry_after: float = ASAP
    """Until when its `Retry-After` holds."""
    backoff: float = ASAP
    """Where the backoff ends at the earliest: as the store that it was first applied to has said already."""

    @property
    def makes_entry(self) -> bool:
        """Whether the response is stored where nothing was."""
        outcome = self.outcome  # members of an Enum are slow to hash, so not in a set
        return outcome is Outcome.FAILURE or outcome is Outcome.MALFORMED or self.retry_after > self.now

    def apply(self, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:
        """Count it and hold until its `Retry-After`; a target is dropped once it is healthy and not held."""
        if entry is None:
            if not self.makes_entry:
                return None
            entry = Entry(self.now, noted=self.now, kind=key.kind, origin=key.origin, path=key.path)
        return self.count(entry, policy)

    def count(self, entry: Entry, policy: Policy) -> Entry | None:
        """Count it in an entry that is stored."""
        if self.outcome is Outcome.FAILURE and (self.sent is None or self.sent >= entry.failed):
            entry.failed = self.now
            entry.fail()
            self._back_off(entry, policy)
        elif self.outcome is Outcome.MALFORMED:
            entry.take_back()
            self._back_off(entry, policy)
        elif self.outcome is Outcome.SUCCESS:
            entry.succeed(self.now)
        entry.back_off_until(self.backoff, self.now)
        entry.retry_after_until(self.retry_after, self.now)
        is_healthy = entry.kind == TARGET and entry.count < 0 and entry.release <= self.now
        return None if is_healthy and self.outcome is Outcome.SUCCESS else entry

    def _back_off(self, entry: Entry, policy: Policy) -> None:
        """Set the release time after a failure (section 5, a to d)."""
        delay = policy.delay(entry.failures - policy.num_errors_to_ignore, self.draw)
        # d) release_time = max(now + delay, release_time)
        entry.back_off_until(advance(self.now, delay), self.now)


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A response declared a bucket, which starts with the values of the entry that held its members."""

    now: float
    start: Entry

    def apply(self, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:  # noqa: ARG002 - a `Change`
        """Make the bucket, or have one that is there already take the greater values."""
        bucket = Entry(self.now, noted=self.now, kind=key.kind, origin=key.origin, path=key.path)
        bucket.absorb(self.start)
        if entry is None:
            return bucket
        entry.absorb(bucket)
        return entry


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """A backoff ends earlier, since the origin says that it is well."""

    now: float
    until: float

    def apply(self, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:  # noqa: ARG002 - a `Change`
        """End the backoff then, if it would hold for longer."""
        if entry is not None:
            entry.backoff = min(entry.backoff, self.until)
        return entry


class ClockSetBack(msgspec.Struct, frozen=True, kw_only=True):
    """An entry has followed a clock that was set back."""

    now: float
    horizons: tuple[float, float, float]
    """The entry's horizons before it did: one that has others by now was changed since, and does not follow again."""

    def apply(self, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:  # noqa: ARG002 - a `Change`
        """Have the entry follow the clock."""
        if entry is not None and entry.horizons == self.horizons:
            entry.follow_clock(self.now)
        return entry


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket that holds nothing gives way to another one."""

    now: float

    def apply(self, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:  # noqa: ARG002 - a `Change`
        """Drop the entry."""
        return None


class OptedOut(msgspec.Struct, frozen=True):
    """A host opted out of throttling, for the life of the throttle."""

    now: float = ASAP

    def apply(self, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:  # noqa: ARG002 - a `Change`
        """Store the host."""
        return entry or Entry(ASAP, kind=key.kind, origin=key.origin)


class RetryTokens(msgspec.Struct, frozen=True, kw_only=True):
    """An origin's retry budget is charged, or earns something; only one that is not full is stored."""

    shares: int
    """How many shares of a token come, or go where it is negative."""
    full: int
    """The shares of a full budget."""
    now: float = ASAP

    def apply(self, entry: Entry | None, key: Key, policy: Policy) -> Entry | None:  # noqa: ARG002 - a `Change`
        """Add the shares."""
        left = max((self.full if entry is None else entry.count) + self.shares, 0)
        if left >= self.full:
            return None
        return Entry(ASAP, count=left, kind=key.kind, origin=key.origin)
