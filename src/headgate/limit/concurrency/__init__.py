"""The concurrency limit: how many requests are in flight at an origin at once, and which of the others wait.

A pure core: no clock, no socket, no thread. Modules, from the top: `limiter` admits, queues and refuses requests;
`learned` finds the limit, and what the origin answers per second; `queue` orders those that wait; `overload` tells
overload from moments; `retry_after` gives the refused their time to return; `request_duration` measures how long they
take; `long_refusals` finds classes that are refused for a day; `values` has what they share.
"""

from headgate.limit.concurrency.limiter import ConcurrencyLimit
from headgate.limit.concurrency.long_refusals import LongRefusals, RequestCounts
from headgate.limit.concurrency.values import (
    CONFIGURED,
    PRIORITIES,
    ConcurrencySettings,
    ConcurrencyState,
    Decision,
    LimitReason,
    Outcome,
    Priority,
    Reason,
    Waiting,
)

__all__ = [
    "CONFIGURED",
    "PRIORITIES",
    "ConcurrencyLimit",
    "ConcurrencySettings",
    "ConcurrencyState",
    "Decision",
    "LimitReason",
    "LongRefusals",
    "Outcome",
    "Priority",
    "Reason",
    "RequestCounts",
    "Waiting",
]
