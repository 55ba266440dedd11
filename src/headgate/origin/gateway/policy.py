"""What a gateway decides by, and which domain and identifier a request belongs to."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from headgate.http.h1 import RequestHead
from headgate.limit import Accounting, Gatekeeper
from headgate.origin.gateway.forwarding import ClientInfo
from headgate.origin.gateway.responses import Respond
from headgate.origin.identify import Identify
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Response
from headgate.origin.routes import Routes

__all__ = ["Policy", "Reject", "classify"]


class Reject(Protocol):
    """Writes the response to a rejected request."""

    def __call__(self, accounting: Accounting, /, *, now: float, accept: bytes | None) -> Response:
        """Return the response; `accept` is the request's Accept."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What requests are decided by; replaced as a whole when the configuration is reloaded."""

    gatekeeper: Gatekeeper
    """Decides which requests may go."""
    identify: Identify
    """Finds the identifier of a request."""
    routes: Routes
    """Finds the domain of a request."""
    reject: Reject
    """Writes the responses to rejected requests."""
    local: Respond | None = None
    """What the gateway answers by itself, without a decision: the traffic advice, bundles."""
    lifeboat: Respond | None = None
    """What answers a rejected request instead of `reject`, where it has an answer."""
    is_trusted: Callable[[str], bool] = lambda _address: False
    """Whether a peer's address is one of the operator's own proxies."""


def classify(
    request: RequestHead, policy: Policy, client: ClientInfo, connection_identifier: bytes | None
) -> tuple[str | None, bytes]:
    """Return the domain and the identifier of a request; the domain is None where no limit applies.

    `connection_identifier` is the identifier of every request on this connection, if fields cannot change it.
    """
    domain = policy.routes.only
    if domain is not None and connection_identifier is not None:
        return domain, connection_identifier
    info = RequestInfo(request.method, request.path, request.host, request.fields, client.address)
    domain = policy.routes.match(info)
    if domain is None:
        return None, b""
    return domain, policy.identify(info) if connection_identifier is None else connection_identifier
