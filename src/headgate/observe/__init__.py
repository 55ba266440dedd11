"""What can be seen from outside: states, metrics, and the admin listener that shows them."""

from headgate.observe.admin import Admin, Read, Readiness
from headgate.observe.metrics import Collect, Metrics, gate_metrics
from headgate.observe.state import DomainState, Held, State, merged

__all__ = ["Admin", "Collect", "DomainState", "Held", "Metrics", "Read", "Readiness", "State", "gate_metrics", "merged"]
