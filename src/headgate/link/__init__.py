"""The bus: ZeroMQ sockets between gatekeepers and masters (smockron.txt, Protocol).

`GatekeeperLink`, `MasterLink` and, between them, `RouterLink` carry the messages of `headgate.limit.messages`, one at a
time or many in a batch (`headgate.link.batch`). They decide nothing: the cores do.
"""

from headgate.link.curve import ClientKeys, KeyPair, ServerKeys, read_client_keys, read_server_keys
from headgate.link.gatekeeper import GatekeeperLink, Shard
from headgate.link.master import MasterLink
from headgate.link.router import RouterLink
from headgate.link.sockets import DEFAULT_PORT, Endpoints, endpoints

__all__ = [
    "DEFAULT_PORT",
    "ClientKeys",
    "Endpoints",
    "GatekeeperLink",
    "KeyPair",
    "MasterLink",
    "RouterLink",
    "ServerKeys",
    "Shard",
    "endpoints",
    "read_client_keys",
    "read_server_keys",
]
