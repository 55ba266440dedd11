"""Anti-DDoS throttling by the agent (anti-ddos-throttling.txt): a pure core.

No socket, loop, clock, thread, log or environment in here, and no chance but the `draw` it is given. A `Throttle`
counts every response and returns when a URL may be asked again, by the backoff of a `Policy`; an `Explanation` says
why.
"""

from headgate.throttle.policy import Policy
from headgate.throttle.throttle import Explanation, Throttle

__all__ = ["Explanation", "Policy", "Throttle"]
