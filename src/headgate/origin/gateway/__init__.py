"""The gateway: a reverse proxy that asks a gatekeeper about every request.

Ambiguous messages are not forwarded: `headgate.http.h1` parses heads and bodies strictly. From the client to the origin
the parts are `server`, `client_connection`, `exchange` and `upstream`; each knows only those after it, and reports to
those before it through a protocol of its own:

    client connection  ⇄  exchange  ⇄  upstream connection
       (Downstream)                      (ResponseHandler)
"""

from headgate.origin.gateway.policy import GatewayPolicy, Reject
from headgate.origin.gateway.server import Gateway, TlsKeys

__all__ = ["Gateway", "GatewayPolicy", "Reject", "TlsKeys"]
