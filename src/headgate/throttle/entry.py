"""What a throttle stores under one key, a count and two horizons, and the changes to it, as values.

A store in memory applies a change to its own entry. A shared store also records it, and applies it again to the entry
that other processes may have changed meanwhile: the rule and the draw are the same in both, so a failure that one
process counts never overwrites one of another. This file knows neither URLs nor HTTP. Instants are seconds since 1970.
"""

import enum
from typing import Final, NamedTuple, Protocol

import msgspec

from headgate.release import ASAP, advance
from headgate.throttle.policy import Policy

KINDS: Final = range(4)
TARGET, BUCKET, OPT_OUT, BUDGET = KINDS
"""A target; a bucket of an origin's targets; a host that opted out; an origin whose retry budget was charged."""


class Key(NamedTuple):
    """What an entry is stored under."""

    kind: int
    origin: str
    """The origin; of a host that opted out, the host."""
    path: str = ""
    """The path of a target or bucket."""


class Entry(msgspec.Struct, gc=False):
    """The failure count and the release time of section 5, the latter as the two horizons it is the later of.

    Of a host that opted out nothing but the key counts; of a retry budget, the key and the `count` of what is left.
    """

    backoff: float
    """Until when the backoff holds; past or present when it does not."""
    count: int = -1
    """The failure count, or -1 where the last success found nothing to lower.

    A success whose body proves broken takes back what it lowered and counts one failure, so it has to be known whether
    it lowered anything: two more are right from 0 as from any other count, and from -1.
    """
    retry_after: float = ASAP
    """Until when a `Retry-After` holds. Kept apart, so that clearing the backoff never clears this."""
    failed: float = ASAP
    """When the last failure was counted, where that is asked for."""
    noted: float = ASAP
    """When a horizon was last set: an instant before it means that the clock was set back since."""
    kind: int = TARGET
    origin: str = ""
    path: str = ""

    @property
    def key(self) -> Key:
        """What the entry is stored under."""
        return Key(self.kind, self.origin, self.path)

    @property
    def failures(self) -> int:
        """The failure count of section 5."""
        return max(self.count, 0)

    @property
    def release(self) -> float:
        """The later of the two horizons."""
        return self.backoff if self.backoff > self.retry_after else self.retry_after

    @property
    def horizons(self) -> tuple[float, float, float]:
        """Both horizons, and when one was last set."""
        return self.backoff, self.retry_after, self.noted

    def is_spent(self, now: float, policy: Policy) -> bool:
        """Return whether a target or bucket is forgotten: released for as long as the policy remembers it."""
        age = now - (self.backoff if self.backoff > self.retry_after else self.retry_after)
        if age < policy.entry_lifetime or self.kind > BUCKET:  # no entry is forgotten sooner
            return False
        return self.count <= 0 or age >= policy.failing_lifetime

    def fail(self) -> None:
        """Count a failure: "increased by one for each failure"."""
        self.count = max(self.count, 0) + 1

    def succeed(self, now: float) -> None:
        """Count a success: "decreased by one (to no less than 0) for each success"; it makes no hold, and ends none."""
        if self.count >= 0:
            self.count -= 1
        self.back_off_until(now, now)

    def back_off_until(self, release: float, now: float) -> None:
        """Set the backoff's horizon, which is never set to an earlier instant."""
        if release > self.backoff:
            self.backoff, self.noted = release, now

    def retry_after_until(self, release: float, now: float) -> None:
        """Set the horizon of `Retry-After`, which is never set to an earlier instant."""
        if release > self.retry_after:
            self.retry_after, self.noted = release, now

    def take_back(self) -> None:
        """Make the success that was just counted a failure."""
        self.count += 2

    def follow_clock(self, now: float) -> bool:
        """Move every instant back with a clock that was set back to `now`; return False where it was not.

        A hold then has as long to go as it had when it was set, and never longer.
        """
        if now >= self.noted:
            return False
        self.backoff = advance(now, self.backoff - self.noted)
        self.retry_after = advance(now, self.retry_after - self.noted)
        self.failed = advance(now, self.failed - self.noted)
        self.noted = now
        return True

    def absorb(self, other: "Entry") -> None:
        """Take the greater count and the later horizons of another entry."""
        self.count = max(self.count, other.count)
        self.backoff = max(self.backoff, other.backoff)
        self.retry_after = max(self.retry_after, other.retry_after)
        self.failed = max(self.failed, other.failed)
        self.noted = max(self.noted, other.noted)

    def assign(self, other: "Entry") -> None:
        """Take all values of another entry."""
        self.count, self.backoff, self.retry_after = other.count, other.backoff, other.retry_after
        self.failed, self.noted = other.failed, other.noted


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
