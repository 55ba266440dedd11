"""What can be seen from outside: the state of a server, its metrics, and the admin application that shows them.

The admin application is imported from `headgate.observe.admin`.
"""

from headgate.observe.metrics import CounterGroups, Counters, read_counters
from headgate.observe.state import (
    AdviceState,
    DomainState,
    GatekeeperTotals,
    GateState,
    HeldIdentifier,
    LinkedMasterState,
    MasterDomainState,
    MasterState,
    MasterTotals,
    RoutedDomain,
    RoutedMasterState,
    RouterState,
    SidecarState,
    gate_metrics,
    master_metrics,
    merge_states,
    router_metrics,
    sidecar_metrics,
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
