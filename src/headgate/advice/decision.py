"""Whether advice permits traffic (traffic-advice.txt, section 7).

Random numbers come from the caller. A proxy cannot know whether a client retries, so its draw is computed from the
client, the origin and a period of ten minutes: a retry gains nothing, and no client is refused forever.
"""

import hashlib
import hmac
import math
from typing import Final

import msgspec

from headgate.advice.parser import UNREACHABLE, AdviceEntry, AdviceResult
from headgate.release import ASAP

DRAW_PERIOD: Final = 600.0
"""Seconds for which a sticky draw is the same."""

_STEPS: Final = 1 << 53


def permits(entry: AdviceEntry, draw: float) -> bool:
    """Return whether an entry lets the traffic through for which the number `draw`, from 0 to 1, was drawn.

    Draw once for each connection and keep the number: "This process should not be repeated as part of automatic
    retry logic" (section 7).
    """
    # 7 step 2: "If r is less than or equal to the result's fraction, then the traffic is permitted by the fraction."
    return not entry.disallowed and draw <= entry.fraction


def sticky_draw(key: bytes, client: bytes, origin: str, *, now: float) -> float:
    """Return the number drawn for a client and an origin: the same until `now` is in another `DRAW_PERIOD`.

    It is uniform over all who ask, more than 0 and at most 1, so that a fraction of 0 permits nothing. `key` is secret
    and random, of 16 bytes or more, and shared by all processes that draw alike, whose clocks agree.
    """
    period = math.floor(now / DRAW_PERIOD)
    said = [client, origin.encode("utf-8", "surrogatepass"), str(period).encode()]
    # Each part with its length, so that no two triples are one text.
    message = b"".join(len(part).to_bytes(8, "big") + part for part in said)
    digest = hmac.new(key, message, hashlib.sha256).digest()
    return ((int.from_bytes(digest[:8], "big") >> 11) + 1) / _STEPS


class Advice(msgspec.Struct, frozen=True):
    """What is known of the advice of one origin."""

    origin: str
    """Its serialisation."""

    result: AdviceResult
    """What the last fetch resulted in."""

    reason: str
    """Why it is that."""

    fresh_until: float
    """When the origin is to be asked again; `NEVER` for one that may not be asked."""

    hold_until: float = ASAP
    """The release time that an origin which was not reached gave with its Retry-After."""

    last: AdviceEntry | None = None
    """Of an origin that was not reached: what it advised before, up to 48 hours after that was no longer fresh."""

    @property
    def entry(self) -> AdviceEntry | None:
        """The entry to go by: an origin too busy to say that it wants no traffic still wants none."""
        return self.last if self.result is UNREACHABLE else self.result

    def release_time(self, draw: float) -> float:
        """Return the release time of the traffic that this number, from 0 to 1, was drawn for; `ASAP` where it may go.

        Traffic that is refused may try again, with the same number, when the origin has been asked again.
        """
        entry = self.entry
        refused = entry is not None and not permits(entry, draw)
        return max(self.hold_until, self.fresh_until) if refused else self.hold_until
