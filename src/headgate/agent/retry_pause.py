"""How long an automatic retry waits, whatever the throttle would allow: a pure formula.

The throttle ignores the first failures of a target, counts 429 as a success, and never holds a request that a user
waits for. Those are rules for new requests. A request that is repeated at once multiplies the load of a server that has
just said that it has too much.
"""

from typing import Final

TOO_MANY_REQUESTS: Final = 429

_FIRST: Final = 0.5
"""Seconds: the shortest pause before the first retry; the longest is twice that."""
_FIRST_AFTER_429: Final = 1.0
"""The same, where the server says that the requests are too many."""
_MAX_DOUBLINGS: Final = 10
"""After so many retries the pauses grow no more: they are 8 to 17 minutes long then, and twice that after 429."""


def retry_pause(status: int, *, retries: int, draw: float) -> float:
    """Return the seconds between a response with this status and the next retry, after so many `retries` before.

    0.5 to 1 for the first retry, 1 to 2 after 429, and twice as long for each further one. `draw` is from [0, 1), so
    that clients which failed together do not come back together.
    """
    first = _FIRST_AFTER_429 if status == TOO_MANY_REQUESTS else _FIRST
    return first * (1.0 + draw) * 2.0 ** min(retries, _MAX_DOUBLINGS)
