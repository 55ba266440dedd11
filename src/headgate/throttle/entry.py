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
"""The kinds of entries: a target, a bucket of targets, a host that opted out, an origin with a used retry budget."""


class EntryKey(NamedTuple):
    """The key of an entry."""

    kind: int
    origin: str
    """The origin; for a host that opted out, the host."""
    path: str = ""
    """The path of a target or bucket."""


class ThrottleEntry(msgspec.Struct, gc=False):
    """The failure count of section 5, and its release time: the later of two horizons.

    For a host that opted out only the key matters; for a retry budget, the key and the `count` of shares left.
    """

    backoff: float
    """The instant at which the backoff ends; not in the future if there is none."""
    count: int = -1
    """The failure count, or -1 if it was 0 at the last success.

    A success whose body proves malformed is taken back and counted as a failure, which adds two to the count. With the
    value -1 that is right, too, for a success that could not lower the count.
    """
    retry_after: float = ASAP
    """The instant at which a `Retry-After` ends; separate, so that clearing the backoff does not clear it."""
    failed: float = ASAP
    """When the last failure was counted; used by `coalesce` only."""
    noted: float = ASAP
    """When a horizon was last set; if `now` is before it, the clock was set back."""
    kind: int = TARGET
    origin: str = ""
    path: str = ""

    @property
    def key(self) -> EntryKey:
        """The key of this entry."""
        return EntryKey(self.kind, self.origin, self.path)

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
        """Both horizons, and when one of them was last set."""
        return self.backoff, self.retry_after, self.noted

    def is_expired(self, now: float, policy: Policy) -> bool:
        """Return whether a target or bucket is expired: it was released for longer than the policy remembers it."""
        age = now - (self.backoff if self.backoff > self.retry_after else self.retry_after)
        if age < policy.entry_lifetime or self.kind > BUCKET:  # the minimum for every entry
            return False
        return self.count <= 0 or age >= policy.failing_lifetime

    def fail(self) -> None:
        """Count a failure: "increased by one for each failure"."""
        self.count = max(self.count, 0) + 1

    def succeed(self, now: float) -> None:
        """Count a success: "decreased by one (to no less than 0) for each success"; it neither sets nor ends a hold."""
        if self.count >= 0:
            self.count -= 1
        if now > self.backoff:
            self.backoff = self.noted = now

    def hold_until(self, backoff: float, retry_after: float, now: float) -> None:
        """Move the ends of the backoff and of the `Retry-After` to later instants; never to earlier ones."""
        if backoff > self.backoff:
            self.backoff, self.noted = backoff, now
        if retry_after > self.retry_after:
            self.retry_after, self.noted = retry_after, now

    def take_back(self) -> None:
        """Change the success that was just counted into a failure."""
        self.count += 2

    def follow_clock(self, now: float) -> bool:
        """If the clock was set back to `now`, move every instant back; return whether it was.

        A hold then lasts as long as when it was set, and never longer.
        """
        if now >= self.noted:
            return False
        self.backoff = advance(now, self.backoff - self.noted)
        self.retry_after = advance(now, self.retry_after - self.noted)
        self.failed = advance(now, self.failed - self.noted)
        self.noted = now
        return True

    def absorb(self, other: "ThrottleEntry") -> None:
        """Take the greater count and the later instants of both entries."""
        self.count = max(self.count, other.count)
        self.backoff = max(self.backoff, other.backoff)
        self.retry_after = max(self.retry_after, other.retry_after)
        self.failed = max(self.failed, other.failed)
        self.noted = max(self.noted, other.noted)

    def assign(self, other: "ThrottleEntry") -> None:
        """Take all values of another entry."""
        self.count, self.backoff, self.retry_after = other.count, other.backoff, other.retry_after
        self.failed, self.noted = other.failed, other.noted


class Change(Protocol):
    """One change to the entry under one key."""

    @property
    def now(self) -> float:
        """When the change happened."""

    def apply(self, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:
        """Change an entry, or return a new one; None drops it."""


def applied(change: Change, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:
    """Apply a change to the entry of a key; an expired entry counts as missing."""
    if entry is not None and entry.is_expired(change.now, policy):
        entry = None
    return change.apply(entry, key, policy)


class ResponseOutcome(enum.Enum):
    """The effect of a response on the failure count."""

    FAILURE = enum.auto()
    SUCCESS = enum.auto()
    MALFORMED = enum.auto()
    """The body of a counted success proved malformed: it was a failure."""
    NEITHER = enum.auto()


# Read for every response: as attributes of an Enum they take 0.1 µs each.
FAILURE, SUCCESS, MALFORMED, NEITHER = ResponseOutcome


class ResponseReceived(msgspec.Struct, frozen=True):
    """A response was received."""

    now: float
    outcome: ResponseOutcome
    draw: float = 0.0
    """The draw of the jitter."""
    sent: float | None = None
    """When the request was sent, if a failure before the last counted one must not count again."""
    retry_after: float = ASAP
    """The end of its `Retry-After`."""
    backoff: float = ASAP
    """The earliest end of the backoff: what the first store that applied this change has already returned."""

    @property
    def makes_entry(self) -> bool:
        """Whether the response creates an entry if there is none."""
        outcome = self.outcome  # hashing a member of an Enum for a set is slow
        return outcome is FAILURE or outcome is MALFORMED or self.retry_after > self.now

    def apply(self, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:
        """Count the response and obey its `Retry-After`; a target is dropped once it is healthy and not held."""
        if entry is None:
            if not self.makes_entry:
                return None
            entry = ThrottleEntry(self.now, noted=self.now, kind=key.kind, origin=key.origin, path=key.path)
        return self.count(entry, policy)

    def count(self, entry: ThrottleEntry, policy: Policy) -> ThrottleEntry | None:
        """Count the response in a stored entry."""
        now, outcome = self.now, self.outcome
        if outcome is SUCCESS:
            entry.succeed(now)
        elif outcome is MALFORMED:
            entry.take_back()
            self._back_off(entry, policy)
        elif outcome is FAILURE and (self.sent is None or self.sent >= entry.failed):
            entry.failed = now
            entry.fail()
            self._back_off(entry, policy)
        entry.hold_until(self.backoff, self.retry_after, now)
        is_healthy = outcome is SUCCESS and entry.count < 0 and entry.kind == TARGET and entry.release <= now
        return None if is_healthy else entry

    def _back_off(self, entry: ThrottleEntry, policy: Policy) -> None:
        """Set the release time after a failure (section 5, a to d)."""
        delay = policy.delay(entry.failures - policy.num_errors_to_ignore, self.draw)
        # d) release_time = max(now + delay, release_time)
        entry.hold_until(advance(self.now, delay), ASAP, self.now)


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A response declared a bucket, which starts with the values of the entries that held its members."""

    now: float
    start: ThrottleEntry

    def apply(self, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:  # noqa: ARG002 - a `Change`
        """Create the bucket, or raise the values of an existing one."""
        bucket = ThrottleEntry(self.now, noted=self.now, kind=key.kind, origin=key.origin, path=key.path)
        bucket.absorb(self.start)
        if entry is None:
            return bucket
        entry.absorb(bucket)
        return entry


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """The origin reports that it is healthy, so a backoff ends earlier."""

    now: float
    until: float

    def apply(self, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:  # noqa: ARG002 - a `Change`
        """End the backoff at `until`, if it would last longer."""
        if entry is not None:
            entry.backoff = min(entry.backoff, self.until)
        return entry


class ClockSetBack(msgspec.Struct, frozen=True, kw_only=True):
    """The clock was set back, and the instants of an entry moved with it."""

    now: float
    horizons: tuple[float, float, float]
    """The entry's horizons before; an entry with other horizons was changed since, and is not moved again."""

    def apply(self, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:  # noqa: ARG002 - a `Change`
        """Move the instants of the entry."""
        if entry is not None and entry.horizons == self.horizons:
            entry.follow_clock(self.now)
        return entry


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket without a hold is dropped to make room for another one."""

    now: float

    def apply(self, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:  # noqa: ARG002 - a `Change`
        """Drop the entry."""
        return None


class OptedOut(msgspec.Struct, frozen=True):
    """A host opted out of throttling, for the lifetime of the throttle."""

    now: float = ASAP

    def apply(self, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:  # noqa: ARG002 - a `Change`
        """Store the host."""
        return entry or ThrottleEntry(ASAP, kind=key.kind, origin=key.origin)


class RetryTokens(msgspec.Struct, frozen=True, kw_only=True):
    """An origin's retry budget changes; a full budget is not stored."""

    shares: int
    """The shares of a token that are added; negative if they are spent."""
    full: int
    """The number of shares of a full budget."""
    now: float = ASAP

    def apply(self, entry: ThrottleEntry | None, key: EntryKey, policy: Policy) -> ThrottleEntry | None:  # noqa: ARG002 - a `Change`
        """Add the shares."""
        left = max((self.full if entry is None else entry.count) + self.shares, 0)
        if left >= self.full:
            return None
        return ThrottleEntry(ASAP, count=left, kind=key.kind, origin=key.origin)
