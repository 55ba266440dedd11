"""The state of a whole proxy as a value, and as JSON."""

from typing import Any

import msgspec

from headgate.advice.decision import Advice
from headgate.advice.parser import result_to_json
from headgate.proxy.counters import Counts


class ProxyState(msgspec.Struct, frozen=True):
    """A whole proxy at one instant."""

    counts: Counts
    """The sum of what its processes counted."""
    advice: dict[str, Advice]
    """Fresh advice of the origins in `counts`."""
    now: float
    """Time of reading, seconds since 1970."""
    dropped: int = 0
    """Log lines dropped."""
    draining: bool = False
    """Whether the proxy drains before it stops."""


def state_to_json(state: ProxyState) -> dict[str, Any]:
    """Return what /api/state shows.

    The `result` of an origin is an object with `disallowed` and `fraction`, "unreachable", or null. Null means that the
    origin gives no advice where `fresh_for` (seconds) is more than 0, else that its advice is unknown or expired.
    """
    origins = []
    for origin, counts in state.counts.origins.items():
        known = state.advice.get(origin)
        origins.append(
            {
                "origin": origin,
                "result": None if known is None else result_to_json(known.result),
                "fresh_for": 0.0 if known is None else round(max(0.0, known.fresh_until - state.now), 3),
                "accepted": counts.accepted,
                "refused": counts.refused,
            }
        )
    return {"origins": origins, "tunnels": state.counts.tunnels, "draining": state.draining}
