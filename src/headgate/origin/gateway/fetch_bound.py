"""How many fetches of the traffic advice a gateway serves: a bound for each address, and one for all.

An agent that follows the document fetches once per max-age. The bounds are far above what many such agents need, even
behind one address, and keep those that ask again and again from taking the gate's time. A fetch beyond them is answered
429 or 503 with Retry-After, which agents take for an origin that accepts no requests (traffic-advice.txt, section 7).
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

CLIENT_FETCHES: Final = 1_000
"""Fetches per max-age that one address may make."""
TOTAL_RATE: Final = 1_000.0
"""Fetches per second that one process serves, in total: a few percent of its time."""
MAX_CLIENTS: Final = 10_000
"""Maximum addresses whose fetches are counted; the one that fetched least recently is forgotten."""
_PAUSE: Final = 0.1
"""The part of a max-age for which an address that asks too often is refused."""
_RETRY: Final = 60.0
"""Seconds after which agents beyond the total may ask again; up to as many more, at random, so that they spread."""


class FetchRefusal(NamedTuple):
    """The response to a fetch beyond a bound."""

    status: int
    """429 for an address that asks too often, 503 if all fetches together are too many."""
    retry_after: int
    """Whole seconds."""


class _Bucket:
    """A token bucket: holds up to `size` tokens, and gains `rate` per second."""

    __slots__ = ("_level", "_since")

    def __init__(self, size: float, now: float) -> None:
        self._level = size
        self._since = now

    def take(self, size: float, rate: float, now: float) -> bool:
        """Take a token; return whether there was one."""
        elapsed, self._since = now - self._since, now
        self._level = min(size, self._level + elapsed * rate)
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True


class FetchBound:
    """Counts the fetches of one process, by a clock that is never set. `draw` returns random numbers in [0, 1)."""

    def __init__(self, max_age: float, draw: Callable[[], float]) -> None:
        self._max_age = max_age
        self._draw = draw
        self._total: _Bucket | None = None
        self._clients: OrderedDict[bytes, _Bucket] = OrderedDict()
        self._refused_until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of addresses that are counted."""
        return len(self._clients)

    def refusal(self, address: bytes, *, now: float) -> FetchRefusal | None:
        """Count a fetch by an address; return how to refuse it, None if it may be served."""
        left = self._refused_until.get(address, now) - now
        if left > 0.0:
            return FetchRefusal(429, math.ceil(left))
        if not self._client(address, now).take(CLIENT_FETCHES, CLIENT_FETCHES / self._max_age, now):
            self._refused_until[address] = now + _PAUSE * self._max_age
            if len(self._refused_until) > MAX_CLIENTS:
                self._refused_until.popitem(last=False)
            return FetchRefusal(429, math.ceil(_PAUSE * self._max_age))
        self._total = self._total or _Bucket(TOTAL_RATE, now)
        if not self._total.take(TOTAL_RATE, TOTAL_RATE, now):
            return FetchRefusal(503, math.ceil(_RETRY * (1.0 + self._draw())))
        return None

    def _client(self, address: bytes, now: float) -> _Bucket:
        bucket = self._clients.get(address)
        if bucket is None:
            bucket = self._clients[address] = _Bucket(CLIENT_FETCHES, now)
            if len(self._clients) > MAX_CLIENTS:
                self._clients.popitem(last=False)
        self._clients.move_to_end(address)
        return bucket
