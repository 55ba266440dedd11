"""Why a request may go or not: a value that programs read and people can (`str`)."""

from typing import Literal, TypeAlias

import msgspec

from headgate.release import ASAP, NEVER

Reason: TypeAlias = Literal["free", "backoff", "retry-after", "opted out", "localhost", "user gesture", "no target"]
"""What decides: nothing holds the URL; its backoff or its `Retry-After` does; or whatever lets it through is named."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a throttle knows of one URL at one instant; instants are seconds since 1970."""

    url: str
    now: float
    target: str | None = None
    """The throttling target, or the bucket that holds it with a `*` behind its path; None for a URL that is not http or
    https."""
    bucket: str | None = None
    """The path of that bucket; None outside of any."""
    failures: int = 0
    """The failure count of the target, or of the bucket."""
    backoff: float = ASAP
    """The horizon of the backoff; `ASAP` where there is none, as for a host that opted out."""
    retry_after: float = ASAP
    """The horizon of `Retry-After`."""
    held: bool = False
    """Whether a request sent now would be held."""
    reason: Reason = "free"
    """Why, or why not."""

    @property
    def release(self) -> float:
        """The later of the two horizons: when the target is released, whatever lets a request through before."""
        return max(self.backoff, self.retry_after)

    def __str__(self) -> str:
        what = self.url if self.target is None else self.target
        return f"{what}: {'held' if self.held else 'free'}, {_BECAUSE[self.reason].format(*self._words())}"

    def _words(self) -> tuple[str, str]:
        times = "one failure" if self.failures == 1 else f"{self.failures or 'no'} failures"
        left = "for good" if self.release == NEVER else f"for {self.release - self.now:.3f} s more"
        return left, times


_BECAUSE: dict[Reason, str] = {
    "free": "nothing holds it, after {1}",
    "backoff": "{0}: the backoff after {1}",
    "retry-after": "{0}: its Retry-After",
    "opted out": "its host opted out of throttling",
    "localhost": "this machine is never held",
    "user gesture": "a user has just asked; else held {0}",
    "no target": "no http or https URL",
}
