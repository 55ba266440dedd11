"""What can be seen from outside: the state of a gate, its metrics, and the admin application that shows them.

The admin application is imported from `headgate.observe.admin`: it needs Starlette.
"""

from headgate.observe.state import DomainState, GateState, HeldIdentifier, gate_metrics, merge_states

__all__ = ["DomainState", "HeldIdentifier", "GateState", "gate_metrics", "merge_states"]
