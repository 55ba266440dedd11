"""Distributed rate limiting with local decisions (smockron.txt): a pure core.

No socket, loop, clock, thread, log or environment in here. A `Gatekeeper` decides on requests, a `Master` decides on
release times, an `Accounting` goes one way and a `DelayUntil` the other.
"""

from headgate.limit.accounting import Accounting, DelayUntil
from headgate.limit.domain import Domain
from headgate.limit.gatekeeper import Gatekeeper
from headgate.limit.master import Master
from headgate.limit.rule import Rule

__all__ = ["Accounting", "DelayUntil", "Domain", "Gatekeeper", "Master", "Rule"]
