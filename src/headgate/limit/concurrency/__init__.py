"""The concurrency limit: how many requests are in flight at an origin at once, and which of the others wait.

A pure core: no clock, no socket, no thread. Modules, from the top: `limiter` admits, queues and rejects requests;
`aimd` learns a limit; `queue` orders the requests that wait; `overload` tells overload from bursts, and spreads the
return of rejected clients; `values` has what they share.
"""

from headgate.limit.concurrency.limiter import ConcurrencyLimit
from headgate.limit.concurrency.values import (
    PRIORITIES,
    ConcurrencySettings,
    ConcurrencyState,
    Decision,
    Priority,
    Reason,
    Waiting,
)

__all__ = [
    "PRIORITIES",
    "ConcurrencyLimit",
    "ConcurrencySettings",
    "ConcurrencyState",
    "Decision",
    "Priority",
    "Reason",
    "Waiting",
]
