"""What can be seen from outside: the state of a server, its metrics, and the admin application that shows them.

The admin application is imported from `headgate.observe.admin`.
"""

from headgate.observe.advice import AdviceState
from headgate.observe.master_state import MasterDomainState, MasterState, master_metrics
from headgate.observe.metrics import CounterGroups, Counters, read_counters
from headgate.observe.router_state import RoutedDomain, RoutedMasterState, RouterState, router_metrics
from headgate.observe.sidecar_state import SidecarState, sidecar_metrics
from headgate.observe.state import (
    DomainState,
    GatekeeperTotals,
    GateState,
    HeldIdentifier,
    LinkedMasterState,
    MasterTotals,
    gate_metrics,
    merge_states,
)

__all__ = [
    "AdviceState",
    "CounterGroups",
    "Counters",
    "DomainState",
    "GatekeeperTotals",
    "HeldIdentifier",
    "GateState",
    "MasterDomainState",
    "MasterState",
    "MasterTotals",
    "RoutedDomain",
    "RoutedMasterState",
    "RouterState",
    "LinkedMasterState",
    "SidecarState",
    "gate_metrics",
    "master_metrics",
    "merge_states",
    "read_counters",
    "router_metrics",
    "sidecar_metrics",
]
