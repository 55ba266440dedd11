"""Anti-DDoS throttling by the agent (anti-ddos-throttling.txt): a pure core.

It uses no socket, event loop, clock, thread, log or environment, and no randomness but the given `draw`. A `Throttle`
counts responses and returns when a URL may be requested again, by the backoff of a `Policy`; an `Explanation` tells
why.
"""

from headgate.throttle.policy import Policy
from headgate.throttle.throttle import Explanation, Throttle

__all__ = ["Explanation", "Policy", "Throttle"]
