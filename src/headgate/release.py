"""The release time: the result of every mechanism of headgate.

This module knows neither rules, frames nor HTTP. A release time is a float, seconds since 1970: the instant before
which a request must not be sent. Several release times combine with ``max``, which is commutative and idempotent, so
messages that are lost, repeated or reordered can never shorten a hold.
"""

import enum
import math

__all__ = ["ASAP", "NEVER", "Status", "advance", "judge"]

ASAP: float = float("-inf")
"""The release time of a request that is not held: the neutral element of ``max``."""

NEVER: float = float("inf")
"""The release time of a request that must never be sent."""


class Status(enum.Enum):
    """The verdict on a request; each value is the document's word on the wire (smockron.txt, Frame 1)."""

    ACCEPTED = "ACCEPTED"
    DELAYED = "DELAYED"
    REJECTED = "REJECTED"


def judge(release: float, *, now: float, max_delay: float) -> Status:
    """Return the verdict at the instant `now` on a request whose release time is `release`.

    Held if and only if `release > now`, strictly; a hold of at most `max_delay` seconds is a delay, a longer one a
    rejection ("requests that would be delayed for an unreasonably long time should be rejected instead",
    smockron.txt, Protocol). All three are seconds; `release` may be `ASAP` or `NEVER`.
    """
    if release <= now:
        return Status.ACCEPTED
    return Status.DELAYED if release - now <= max_delay else Status.REJECTED


def advance(instant: float, seconds: float) -> float:
    """Add `seconds` to `instant`, rounding down.

    Rounding down ensures that floating-point error never extends a hold.
    """
    total = instant + seconds
    # One of the two differences is exact, and the other cannot be too large.
    return math.nextafter(total, ASAP) if total - instant > seconds or total - seconds > instant else total
