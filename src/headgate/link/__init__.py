"""The bus: ZeroMQ sockets between gatekeepers and masters (smockron.txt, Protocol).

`GatekeeperLink` and `MasterLink` carry the values of `headgate.limit` as the frames of `headgate.limit.wire`, or many
at once as `headgate.link.batch` has them. What they decide nothing of, the cores do.
"""

from headgate.link.gatekeeper import GatekeeperLink
from headgate.link.master import MasterLink
from headgate.link.sockets import DEFAULT_PORT, Endpoints, endpoints
from headgate.link.subscriptions import AccountingMode

__all__ = ["DEFAULT_PORT", "AccountingMode", "Endpoints", "GatekeeperLink", "MasterLink", "endpoints"]
