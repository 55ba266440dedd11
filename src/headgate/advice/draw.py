"""The one draw a connection gets (traffic-advice.txt, section 7).

Chance is the caller's. For a proxy, which cannot know that a client asks again, there is a draw that depends on who
asks and of whom, so that asking again changes nothing.
"""

import hashlib
import hmac
from typing import Final

from headgate.advice.result import AdviceEntry

__all__ = ["epoch", "permits", "sticky_draw"]

_STEPS: Final = 1 << 53


def permits(entry: AdviceEntry, draw: float) -> bool:
    """Say whether an entry lets the traffic through for which the number `draw`, from 0 to 1, was drawn.

    Draw once for each connection and keep the number: "This process should not be repeated as part of automatic
    retry logic" (section 7).
    """
    # 7 step 2: "If r is less than or equal to the result's fraction, then the traffic is permitted by the fraction."
    return not entry.disallowed and draw <= entry.fraction


def sticky_draw(key: bytes, client: bytes, origin: str, epoch: str) -> float:
    """Give the number drawn for a client and an origin while the origin's advice is what it is: the same each time.

    It is uniform over all who ask, more than 0 and at most 1, so that a fraction of 0 permits nobody. `key` is secret
    and random, of 16 bytes or more, and shared by all who shall draw alike; `epoch` is from `epoch`.
    """
    said = [client, origin.encode("utf-8", "surrogatepass"), epoch.encode()]
    # Each part with its length, so that no two triples are one text.
    message = b"".join(len(part).to_bytes(8, "big") + part for part in said)
    digest = hmac.new(key, message, hashlib.sha256).digest()
    return ((int.from_bytes(digest[:8], "big") >> 11) + 1) / _STEPS


def epoch(entry: AdviceEntry) -> str:
    """Name the content of an entry: another epoch if and only if another is advised, however often it is fetched."""
    return f"{entry.disallowed} {entry.fraction!r}"
