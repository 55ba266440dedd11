"""What can be seen from outside: states, metrics, and the admin application that shows them."""

from headgate.observe.metrics import Collect, Metrics, gate_metrics
from headgate.observe.state import DomainState, HeldIdentifier, State, merge_states

__all__ = ["Collect", "DomainState", "HeldIdentifier", "Metrics", "State", "gate_metrics", "merge_states"]
