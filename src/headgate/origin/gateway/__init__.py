"""The gateway: a reverse proxy that asks a gatekeeper about every request.

Ambiguous messages are not forwarded: `headgate.http.h1` parses heads and bodies strictly. A request has one
`RequestRecord` (`record`), which all parts fill in. It goes in one direction:

    client_connection   reads it, has it decided on, answers it or has it forwarded, and completes its record
    policy              decides: finds domain and identifier, asks the gatekeeper, makes the response to a rejection
    exchange            forwards it over a connection to the origin, and relays the response

A usual proxied GET touches these three files and five others: `http/h1/request` and `http/h1/response` parse,
`limit/gatekeeper`, `limit/master` and `limit/history` decide. Where to add

    a field of the record or a counter    `record`, and the part that knows its value
    a metric of requests                  `meter`, which counts each record when it is complete
    a field of the access log             `runtime/access_log`; another log: `observe` of `Gateway` in `server`
    a response of the gateway             `responses`; who sends it sets `reason` of the record
    a rule for requests                   `policy`
    a setting that a reload changes       `settings`, which all parts share
    a kind of origin, a retry             `exchange`: its pool, `lost` and `fail`
    what slow clients get                 `buffer`, and `collect` and `relay` of `exchange`
    how an origin is chosen or checked    `balancer`, which is pure; `origins` builds and replaces them
    what precedes HTTP on a connection    `listener`, and `_begin_preface` of `client_connection`
"""

from headgate.origin.gateway.listener import ListenerSettings
from headgate.origin.gateway.policy import GatewayPolicy
from headgate.origin.gateway.server import Gateway
from headgate.origin.gateway.tls import TlsKeys

__all__ = ["Gateway", "GatewayPolicy", "ListenerSettings", "TlsKeys"]
