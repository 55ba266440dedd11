"""The policy of a gateway, and its decision on a request."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from headgate.http.h1 import RequestHead
from headgate.limit import Accounting, Gatekeeper
from headgate.limit.concurrency import Priority
from headgate.origin.gateway.advice_resource import AdviceResource
from headgate.origin.gateway.arrivals import ArrivalMeter
from headgate.origin.gateway.forwarding import ClientInfo
from headgate.origin.gateway.responses import Respond
from headgate.origin.identify import ClientAddress, Identify, client_address
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Refusals, Response
from headgate.origin.routes import Routes
from headgate.release import Status

_EXPLANATIONS = {
    "untrusted": (
        "headgate: {0} sends forwarding fields that are not used, so all of its requests count as one client; if it is "
        'your proxy, set gate.trusted_proxies = ["{0}"]'
    ),
    "disagree": (
        "headgate: the forwarding fields of the proxy {0} disagree, so these requests count for the proxy; list in "
        "gate.forwarding_fields only the one that it writes"
    ),
}
MAX_NAMED_PEERS = 64
"""Peers whose forwarding fields are reported in the log."""


class Reject(Protocol):
    """Writes the response to a rejected request."""

    def __call__(self, accounting: Accounting, /, *, now: float, accept: bytes | None) -> Response:
        """Return the response; `accept` is the request's Accept."""


FAILURES: Final = ("unreachable", "malformed", "descriptors", "timeout", "truncated")


class GatewayCounters(msgspec.Struct):
    """What a gateway counts."""

    malformed: int = 0
    """Requests refused as malformed HTTP."""
    connections_refused: dict[str, int] = msgspec.field(default_factory=lambda: {"limit": 0, "client_limit": 0})
    """Connections answered 503, or closed before a TLS handshake: the limit of all connections, or of those of one
    client address, is reached."""
    idle_closed: int = 0
    """Idle connections closed at the limit of all connections, for a new one."""
    handshakes_failed: int = 0
    """TLS handshakes that failed or were not complete in time."""
    failed: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(FAILURES, 0))
    """Requests that failed at the origin. Answered 502: unreachable, it accepted no connection or closed it without an
    answer; malformed, its answer is not valid HTTP; descriptors, this process has none left for a connection. 504:
    timeout. Truncated responses are cut off."""
    forwarding_unused: dict[str, int] = msgspec.field(default_factory=lambda: {"untrusted": 0, "disagree": 0})
    """Requests whose forwarding fields are not used: their peer is not a trusted proxy, or two fields disagree."""
    retried: int = 0
    """Requests sent to the origin a second time: its idle connection had closed."""
    lifeboat: int = 0
    """Rejected requests answered from a bundle instead."""
    advice_served: int = 0
    """Requests for the traffic advice that were answered."""


class GatewayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for requests; replaced as a whole when the configuration is reloaded."""

    gatekeeper: Gatekeeper
    """Decides which requests may go."""
    identify: Identify
    """Finds the identifier of a request."""
    routes: Routes
    """Finds the domain of a request."""
    reject: Reject
    """Writes the responses to rejected requests."""
    refuse: Refusals = msgspec.field(default_factory=Refusals)
    """Writes the responses to requests that the concurrency limit refuses."""
    link: Callable[[RequestHead], bytes] | None = None
    """Returns the value of Link in the response to a refused request; empty for none."""
    priorities: Mapping[str, Priority] = {}
    """The priority of each domain, for the concurrency limit; that of others, and of no domain, is people."""
    uncounted: frozenset[str] = frozenset()
    """The domains whose responses the concurrency limit does not count."""
    advice: AdviceResource | None = None
    """Answers requests for the traffic advice."""
    arrivals: ArrivalMeter | None = None
    """Counts the requests that are decided on, by class of agents."""
    local: Respond | None = None
    """Answers other requests that need no decision, such as for bundles."""
    lifeboat: Respond | None = None
    """Answers a rejected or refused request, if it has an answer."""
    trusted: ClientAddress = msgspec.field(default_factory=client_address)
    """The client's address behind the operator's own proxies: their forwarding fields are continued, those of other
    peers are replaced."""
    log: Callable[[str], None] = lambda _message: None
    """Receives a line for each peer, of the first ones, whose forwarding fields are not used."""
    named: set[str] = msgspec.field(default_factory=set)
    """The peers that the log has."""


class ClientView(msgspec.Struct, frozen=True):
    """A client's connection under one policy, which decides whether it is trusted and how it is identified."""

    policy: GatewayPolicy
    info: ClientInfo
    identifier: bytes | None
    """The identifier of each of its requests; None where their fields can change it."""

    @classmethod
    def of(cls, policy: GatewayPolicy, transport: asyncio.Transport) -> "ClientView":
        """Make the view of the client of a connection."""
        name = transport.get_extra_info("peername")
        address = str(name[0]) if isinstance(name, tuple) else ""
        if address.startswith("::ffff:") and "." in address:
            address = address[7:]  # an IPv4 client of an IPv6 socket
        tls = transport.get_extra_info("ssl_object") is not None
        info = ClientInfo(address, proxies=policy.trusted, tls=tls)
        return cls(policy, info, policy.identify.per_connection(address))


def decide(request: RequestHead, client: ClientView, counters: GatewayCounters) -> Response | Accounting | None:
    """Decide on a request by the policy of `client`, and account for it.

    Returns its accounting for a request to forward at once or to delay, None for one without a domain, and the response
    to one that is answered here.
    """
    policy = client.policy
    if not request.forwardable:
        _check_forwarding(request, client, counters)
    if policy.advice is not None and policy.advice.is_for(request):
        counters.advice_served += 1
        return policy.advice.respond(request)
    if policy.local is not None:
        response = policy.local(request)
        if response is not None:
            return response
    domain, identifier = classify(request, client)
    if policy.arrivals is not None:
        policy.arrivals.count(request, domain)
    if domain is None:
        return None
    now = time.time()
    accounting = policy.gatekeeper.admit(domain, identifier, now=now)
    if accounting.status is not Status.REJECTED:
        return accounting
    return _rescue(request, policy, counters) or policy.reject(accounting, now=now, accept=_accept(request))


def _check_forwarding(request: RequestHead, client: ClientView, counters: GatewayCounters) -> None:
    """Count a request whose forwarding fields are not used; name its peer in the log once."""
    policy, info = client.policy, client.info
    names, peer = policy.trusted.readers, info.address or "unix"
    if info.trusted:
        reason, is_used = "disagree", len(names) < 2 or policy.trusted.chain(request.fields) is not None
    else:
        reason, is_used = "untrusted", all(name not in names for name, _ in request.fields)
    if is_used:
        return
    counters.forwarding_unused[reason] += 1
    if peer not in policy.named and len(policy.named) < MAX_NAMED_PEERS:
        policy.named.add(peer)
        policy.log(_EXPLANATIONS[reason].format(peer))


def refusal(request: RequestHead, client: ClientView, retry_after: float, counters: GatewayCounters) -> Response:
    """Return the response to a request that the concurrency limit refuses; see `decide`."""
    policy = client.policy
    link = policy.link(request) if policy.link is not None else b""
    return _rescue(request, policy, counters) or policy.refuse(retry_after, accept=_accept(request), link=link)


def flow_of(request: RequestHead, client: ClientView) -> bytes:
    """Return the identifier of the client of a request, whether it has a domain or not."""
    if client.identifier is not None:
        return client.identifier
    return client.policy.identify(_info(request, client))


def _rescue(request: RequestHead, policy: GatewayPolicy, counters: GatewayCounters) -> Response | None:
    response = policy.lifeboat(request) if policy.lifeboat is not None else None
    if response is not None:
        counters.lifeboat += 1
    return response


def _accept(request: RequestHead) -> bytes | None:
    return b", ".join(request.values(b"accept")) or None


def _info(request: RequestHead, client: ClientView) -> RequestInfo:
    return RequestInfo(request.method, request.path, request.host, request.fields, client.info.address)


def classify(request: RequestHead, client: ClientView) -> tuple[str | None, bytes]:
    """Return the domain and the identifier of a request; the domain is None where no limit applies."""
    policy, identifier = client.policy, client.identifier
    domain = policy.routes.only
    if domain is not None and identifier is not None:
        return domain, identifier
    info = _info(request, client)
    domain = policy.routes.match(info)
    if domain is None:
        return None, b""
    return domain, policy.identify(info) if identifier is None else identifier
