"""What a throttle remembers under one key: a count and two horizons.

This file knows nothing of URLs and responses. Instants are seconds since 1970.
"""

from typing import Final, NamedTuple

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
