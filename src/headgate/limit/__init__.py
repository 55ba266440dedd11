"""Distributed rate limiting with local decisions (smockron.txt), and the concurrency limit: pure cores.

This package uses no socket, event loop, clock, thread, log or environment. A `Gatekeeper` decides on requests, a
`Master` computes release times; the gatekeeper sends `Accounting`, and the master answers with `DelayUntil`.
"""

from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings
from headgate.limit.domain import Domain
from headgate.limit.gatekeeper import Gatekeeper
from headgate.limit.master import Master
from headgate.limit.messages import Accounting, DelayUntil
from headgate.limit.rule import Rule

__all__ = [
    "Accounting",
    "ConcurrencyLimit",
    "ConcurrencySettings",
    "DelayUntil",
    "Domain",
    "Gatekeeper",
    "Master",
    "Rule",
]
