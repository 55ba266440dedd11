"""Which requests are sent again after a failure, and after which pause."""

import math
from collections.abc import Collection
from typing import Final

import msgspec

from headgate.errors import check_count, check_seconds, fail_if

TOO_MANY_REQUESTS: Final = 429

_FIRST: Final = 0.5
"""Seconds: the shortest pause before the first retry; the longest is twice that."""
_FIRST_AFTER_429: Final = 1.0
"""The same after 429."""
_MAX_DOUBLINGS: Final = 10
"""Number of retries after which pauses stop growing, at 8 to 17 minutes, or twice that after 429."""


class Retry(msgspec.Struct, frozen=True):
    """After which failures a request is sent again, and how often; `Retry(2)` is what `retry=2` means.

    Only requests whose body can be sent again are. A failure to connect, before anything was sent, is repeated for all
    methods. Raises `ConfigurationError`, which names the field, for an invalid value.
    """

    attempts: int
    """How often a request is sent again at most."""
    statuses: Collection[int] = frozenset({408, 425, 429, 500, 502, 503, 504})
    """The status codes after which it is."""
    methods: Collection[str] = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
    """The methods that may be repeated; a request with an `Idempotency-Key` always may."""
    exceptions: tuple[type[Exception], ...] = ()
    """Exceptions of the HTTP library after which it is, beside those for broken and refused connections."""
    total_time: float = math.inf
    """Seconds from the first request in which the last retry has to be sent."""

    def __post_init__(self) -> None:
        check_count("retry", self.attempts)
        check_seconds("total_time", self.total_time)
        fail_if(
            not all(isinstance(status, int) for status in self.statuses),
            f"statuses must be a set such as {{429, 503}}, got {self.statuses!r:.80}",
        )
        fail_if(
            isinstance(self.methods, str) or not all(isinstance(method, str) for method in self.methods),
            f"methods must be a set such as {{'GET', 'POST'}}, got {self.methods!r:.80}",
        )
        fail_if(
            not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in self.exceptions),
            f"exceptions must be a tuple of classes, got {self.exceptions!r:.80}",
        )


def retry_pause(status: int, *, retries: int, draw: float) -> float:
    """Return the seconds between a failure with this status, 0 for none, and a retry, after so many `retries` before.

    0.5 to 1 for the first retry, 1 to 2 after 429, and twice as long for each further one. `draw` is from [0, 1), so
    that clients which failed together do not come back together. The throttle's own holds are for new requests: a
    request that is repeated at once multiplies the load of a server that has just said that it has too much.
    """
    first = _FIRST_AFTER_429 if status == TOO_MANY_REQUESTS else _FIRST
    return first * (1.0 + draw) * 2.0 ** min(retries, _MAX_DOUBLINGS)
