"""What a whole proxy is doing, as a value, and how it is shown."""

from typing import Any

import msgspec

from headgate.advice.answer import Advice
from headgate.advice.result import result_to_json
from headgate.proxy.counters import Counts

__all__ = ["ProxyState", "shown"]


class ProxyState(msgspec.Struct, frozen=True):
    """A whole proxy at one instant."""

    counts: Counts
    """What all its processes counted."""
    advice: dict[str, Advice]
    """What is known, and fresh, of the origins in `counts`."""
    now: float
    """When: seconds since 1970."""
    dropped: int = 0
    """Lines of the log that nobody will read."""
    draining: bool = False
    """Whether the end has begun."""


def shown(state: ProxyState) -> dict[str, Any]:
    """Give what /api/state shows.

    An origin's `result` is an object with `disallowed` and `fraction`, "unreachable", or null: without advice where
    `fresh_for` is more than 0 (seconds), and else not known, or not known any more.
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
