"""What a throttle stores under one target or bucket: a failure count and two horizons.

This file knows neither URLs nor HTTP. Instants are seconds since 1970.
"""

import msgspec

from headgate.release import ASAP, advance
from headgate.throttle.policy import Policy


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

    def take_back(self) -> None:
        """Take back the success that was just counted."""
        self.count += 1

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
