"""What can be seen from outside: states, metrics, and the admin listener that shows them."""

from headgate.observe.admin import Admin, Readiness
from headgate.observe.metrics import Metrics
from headgate.observe.state import DomainState, Held, State, merged

__all__ = ["Admin", "DomainState", "Held", "Metrics", "Readiness", "State", "merged"]
