"""What can be seen from outside: states, metrics, and the admin listener that shows them."""

from headgate.observe.admin import Admin, Read, Readiness
from headgate.observe.metrics import Metrics
from headgate.observe.state import DomainState, Held, State, merged

__all__ = ["Admin", "DomainState", "Held", "Metrics", "Read", "Readiness", "State", "merged"]
