"""How long a traffic advice result stays fresh (traffic-advice.txt, section 5 step 6, and section 8).

"Notwithstanding the usual behavior of HTTP caching": at least ten minutes, so that an agent cannot be made to ask an
origin again and again, and at most 48 hours, so that an origin's bad moment does not outlast it by more.
"""

from typing import Final

from headgate.advice.fetching import AdviceResponse
from headgate.advice.result import UNREACHABLE, AdviceResult
from headgate.http.fields import Pairs, lines_of
from headgate.http.freshness import Freshness, freshness
from headgate.http.retry_after import retry_after
from headgate.release import ASAP

MIN_FRESHNESS: Final = 600.0
"""Seconds that a result other than `UNREACHABLE` stays fresh, whatever its response says: "10 minutes is suggested"."""

MAX_FRESHNESS: Final = 172_800.0
"""Seconds that any result stays fresh at most: "48 hours is suggested"."""

DEFAULT_FRESHNESS: Final = 1_800.0
"""Seconds, where the response says nothing of its freshness: "30 minutes may be appropriate"."""

UNREACHABLE_FOR: Final = 60.0
"""Seconds before an origin that was not reached is asked again, where it did not say when."""

_MIN_UNREACHABLE_FOR: Final = 1.0


def fresh_for(
    response: AdviceResponse, result: AdviceResult, *, now: float, unreachable_for: float = UNREACHABLE_FOR
) -> float:
    """Return the seconds for which `result`, what a response that came at `now` meant, stays fresh.

    That of `UNREACHABLE` is its Retry-After, from a second to 48 hours, else `unreachable_for`.
    """
    if result is UNREACHABLE:
        release = retry_release(response.fields, now=now)
        return unreachable_for if release == ASAP else min(max(release - now, _MIN_UNREACHABLE_FOR), MAX_FRESHNESS)
    return clamped(freshness(response.fields, now=now))


def clamped(said: Freshness) -> float:
    """Return the seconds that are left of a lifetime, by the suggested minimum, maximum and default."""
    if said.lifetime is None:
        return DEFAULT_FRESHNESS
    # The age counts against the lifetime, not against the minimum.
    return max(min(said.lifetime, MAX_FRESHNESS) - said.age, MIN_FRESHNESS)


def retry_release(fields: Pairs, *, now: float) -> float:
    """Return the latest release time that the lines of Retry-After ask for; `ASAP` where they ask for nothing."""
    return max((retry_after(line, now=now) for line in lines_of(fields, "retry-after")), default=ASAP)
