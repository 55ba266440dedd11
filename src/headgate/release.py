"""The release time: the one value every mechanism of headgate answers with.

This file knows nothing of rules, frames or HTTP. A release time is a float, seconds since 1970: the instant
before which a request must not go. Gates combine theirs with ``max``, which is commutative and idempotent, so
messages that are lost, repeated or reordered can never shorten a hold.
"""

import enum
import math

__all__ = ["ASAP", "NEVER", "Status", "advance", "judge"]

ASAP: float = float("-inf")
"""The release time of a request nothing holds: the neutral element of ``max``."""

NEVER: float = float("inf")
"""The release time of a request that may not go at all."""


class Status(enum.Enum):
    """What became of a request; each value is the document's word on the wire (smockron.txt, Frame 1)."""

    ACCEPTED = "ACCEPTED"
    DELAYED = "DELAYED"
    REJECTED = "REJECTED"


def judge(release: float, *, now: float, max_delay: float) -> Status:
    """Say what becomes of a request whose release time is `release`, at the instant `now`.

    Held if and only if `release > now`, strictly; a hold of at most `max_delay` seconds is a delay, a longer one a
    rejection ("requests that would be delayed for an unreasonably long time should be rejected instead",
    smockron.txt, Protocol). All three are seconds; `release` may be `ASAP` or `NEVER`.
    """
    if release <= now:
        return Status.ACCEPTED
    return Status.DELAYED if release - now <= max_delay else Status.REJECTED


def advance(instant: float, seconds: float) -> float:
    """Add `seconds` to `instant`, rounding down.

    A sum that rounded up would hold a request that arrives exactly at its release time for a float's dust longer.
    """
    total = instant + seconds
    # Taking off the larger of the two leaves an exact difference; the other one can only be too small.
    return math.nextafter(total, ASAP) if total - instant > seconds or total - seconds > instant else total
