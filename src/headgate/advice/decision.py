"""Whether advice permits traffic (traffic-advice.txt, section 7).

Draws are derived from a secret key: a proxy's from the client, the origin and a period of ten minutes, since it cannot
know whether a client retries; an agent's from the request and the advice. So a request gains nothing by being repeated,
and none is refused for ever.
"""

import hashlib
import hmac
import math
from typing import Final

import msgspec

from headgate.advice.parser import UNREACHABLE, AdviceEntry, AdviceResult
from headgate.release import ASAP

DRAW_PERIOD: Final = 600.0
"""Seconds for which a sticky draw stays the same."""

_STEPS: Final = 1 << 53


def permits(entry: AdviceEntry, draw: float) -> bool:
    """Return whether an entry permits traffic for which the number `draw`, from 0 to 1, was drawn.

    Draw once for each connection and keep the number for its retries: "This process should not be repeated as part of
    automatic retry logic" (section 7).
    """
    # 7 step 2: "If r is less than or equal to the result's fraction, then the traffic is permitted by the fraction."
    return not entry.disallowed and draw <= entry.fraction


def sticky_draw(key: bytes, client: bytes, origin: str, *, now: float) -> float:
    """Return the number drawn for a client and an origin, the same for all `now` in one `DRAW_PERIOD`.

    It is uniform over clients and origins, above 0 and at most 1, so that a fraction of 0 permits nothing. `key` has at
    least 16 secret random bytes. Processes with the same key and synchronous clocks draw the same numbers.
    """
    period = math.floor(now / DRAW_PERIOD)
    return derived_draw(key, client, origin.encode("utf-8", "surrogatepass"), str(period).encode())


def derived_draw(key: bytes, *parts: bytes) -> float:
    """Return a number above 0 and at most 1 that is always the same for one key and the same parts."""
    # Each part follows its length, so that different parts never make the same message.
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    digest = hmac.digest(key, message, hashlib.sha256)
    return ((int.from_bytes(digest[:8], "big") >> 11) + 1) / _STEPS


class Advice(msgspec.Struct, frozen=True):
    """The advice of one origin, as far as it is known."""

    origin: str
    """The serialised origin."""

    result: AdviceResult
    """The result of the last fetch."""

    reason: str
    """The reason for the result, a sentence without a full stop."""

    fresh_until: float
    """When to fetch again; `NEVER` for an origin that must not be asked."""

    hold_until: float = ASAP
    """The release time by the Retry-After of an unreachable origin."""

    previous: AdviceEntry | None = None
    """The entry before the origin became unreachable; it applies for up to 48 hours after its freshness."""

    kind: str = "advice"
    """The well-known resource: "advice" or "robots"."""

    @property
    def entry(self) -> AdviceEntry | None:
        """The entry that applies: that of the result, or the previous one of an unreachable origin."""
        return self.previous if self.result is UNREACHABLE else self.result

    def release_time(self, draw: float) -> float:
        """Return the release time of traffic for which `draw`, from 0 to 1, was drawn; `ASAP` if it is permitted.

        Refused traffic may be tried again, with the same draw, once the advice has been fetched again.
        """
        entry = self.entry
        refused = entry is not None and not permits(entry, draw)
        return max(self.hold_until, self.fresh_until) if refused else self.hold_until
