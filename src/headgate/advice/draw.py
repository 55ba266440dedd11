"""The one draw a connection gets (traffic-advice.txt, section 7).

Random numbers come from the caller. A proxy cannot know that a client asks again, so its draw depends on the client,
the origin and the ten minutes: a retry gains nothing, and no client is refused for ever.
"""

import hashlib
import hmac
import math
from typing import Final

from headgate.advice.result import AdviceEntry

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
