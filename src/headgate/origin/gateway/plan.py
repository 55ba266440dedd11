"""What the gateway does with a request, worked out once per head: agents repeat theirs, and their plan with it."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from headgate.limit import Accounting, Gatekeeper
from headgate.origin.gateway.forwarding import Peer, forwarded_head
from headgate.origin.gateway.grammar import Request
from headgate.origin.head import Head
from headgate.origin.identify import Identify
from headgate.origin.rejection import Response
from headgate.origin.routes import Routes

__all__ = ["Plan", "Policy", "Reject", "Respond", "make_plan"]

_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"PUT"})
"""Idempotent methods (9110 9.2.2): without a body they may be sent a second time."""


class Reject(Protocol):
    """Writes the response to a rejected request."""

    def __call__(self, accounting: Accounting, /, *, now: float, accept: bytes | None) -> Response:
        """Return the response; `accept` is the request's Accept."""


Respond = Callable[[Request], Response | None]
"""Answers a request without the origin; None for one that it has no answer for."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided by, replaced as a whole when the configuration is reloaded."""

    gatekeeper: Gatekeeper
    """Who may go now."""
    identify: Identify
    """Who asks."""
    routes: Routes
    """Which domain a request belongs to."""
    reject: Reject
    """What a rejected request is told."""
    local: Respond | None = None
    """What the gateway answers by itself, the gatekeeper unasked: the traffic advice, bundles."""
    lifeboat: Respond | None = None
    """What answers a rejected request instead of `reject`, where it has an answer."""
    is_trusted: Callable[[str], bool] = lambda _peer: False
    """Whether a peer's address is one of the operator's own proxies."""


class Plan:
    """One head, ready to be decided on and forwarded."""

    __slots__ = ("domain", "head", "identifier", "plain", "policy", "repeatable", "request")

    def __init__(self, request: Request, policy: Policy, domain: str | None, identifier: bytes) -> None:
        self.request = request
        self.policy = policy
        """What it was made by; when that is replaced, so is the plan."""
        self.domain = domain
        """None: not limited."""
        self.identifier = identifier
        self.head = b""
        """What the origin is sent."""
        self.repeatable = request.method in _REPEATABLE and not request.has_body
        """Whether the request may be sent twice."""
        self.plain = request.minor == 1 and request.keep_alive and request.method != b"HEAD" and not request.has_body
        """Whether a plain answer can be passed on with the head it has on any lasting HTTP/1.1 connection."""


def make_plan(request: Request, policy: Policy, peer: Peer, *, identifier: bytes | None, authority: bytes) -> Plan:
    """Work out domain, identifier and forwarded head; `identifier` is what holds for the whole connection, if any."""
    domain = policy.routes.only
    if domain is None or identifier is None:
        head = Head(request.method, request.path, request.host, request.fields, peer.address)
        domain = policy.routes.match(head)
        if identifier is None:
            identifier = policy.identify(head) if domain is not None else b""
    plan = Plan(request, policy, domain, identifier)
    plan.head = forwarded_head(request, peer, authority)
    return plan
