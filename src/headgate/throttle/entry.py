"""What a throttle remembers of one target or bucket: a count, two horizons, nothing else.

This file knows nothing of URLs and policies. Instants are seconds since 1970.
"""

import msgspec

from headgate.release import ASAP, advance

__all__ = ["Entry"]


class Entry(msgspec.Struct, gc=False):
    """The failure count and the release time of section 5, the latter as the two horizons it is the later of."""

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

    @property
    def failures(self) -> int:
        """The failure count of section 5."""
        return max(self.count, 0)

    @property
    def release(self) -> float:
        """The later of the two horizons."""
        return self.backoff if self.backoff > self.retry_after else self.retry_after

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
