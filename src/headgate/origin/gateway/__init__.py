"""The gateway: a reverse proxy with the gatekeeper's decision inside.

Nothing ambiguous is forwarded: see `grammar` (heads), `chunked` (bodies) and `answer` (responses), which are pure.
`connection`, `exchange` and `upstream` are the shells about them, and `server` puts them together.
"""

from headgate.origin.gateway.plan import Policy, Reject
from headgate.origin.gateway.server import Gateway
from headgate.origin.gateway.tls import TlsKeys

__all__ = ["Gateway", "Policy", "Reject", "TlsKeys"]
