"""The policy of a gateway, and its decision on a request."""

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from headgate.http.h1 import RequestHead
from headgate.limit import Accounting, Gatekeeper
from headgate.limit.concurrency import Priority
from headgate.origin.gateway.arrivals import ArrivalMeter
from headgate.origin.gateway.forwarding import ClientInfo
from headgate.origin.gateway.record import GatewayCounters, RequestRecord
from headgate.origin.gateway.responses import AdviceResource, Respond, gateway_problem
from headgate.origin.identify import ClientAddress, Identify, client_address
from headgate.origin.pages import Pages
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Refusals, Rejections, Response
from headgate.origin.routes import Routes
from headgate.release import Status

if TYPE_CHECKING:
    from headgate.origin.agents import AgentVerifier

_EXPLANATIONS = {
    "untrusted": (
        "{0} sends forwarding fields that are not used, so all of its requests count as one client; if it is "
        'your proxy, set gate.trusted_proxies = ["{0}"]'
    ),
    "disagree": (
        "the forwarding fields of the proxy {0} disagree, so these requests count for the proxy; list in "
        "gate.forwarding_fields only the one that it writes"
    ),
}
_ACCEPT = re.compile(rb"\n[Aa](?i:ccept):[\t ]*+([^\r]*+)")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._~=+/@-]{1,128}")
"""An id that can stand in a log, in HTML, and as a reference in a problem document without being escaped."""
_SIGNATURES = re.compile(rb"\n([Ss](?i:ignature(?:-input|-agent)?+):[^\r]*+)")
_SIGNATURE_LINES = 3
"""Lines that a signed request has at least."""
MAX_NAMED_PEERS = 64
"""Peers whose forwarding fields are reported in the log."""


class GatewayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for requests; replaced as a whole when the configuration is reloaded."""

    gatekeeper: Gatekeeper
    """Decides which requests may go."""
    identify: Identify
    """Finds the identifier of a request."""
    routes: Routes
    """Finds the domain of a request."""
    reject: Rejections
    """Writes the responses to rejected requests."""
    quota: Callable[[Accounting], bytes] | None = None
    """Returns the field lines about the quota of an accepted request."""
    refuse: Refusals = msgspec.field(default_factory=Refusals)
    """Writes the responses to requests that the concurrency limit refuses."""
    link: Callable[[RequestHead], bytes] | None = None
    """Returns the value of Link in the response to a refused request; empty for none."""
    priorities: Mapping[str, Priority] = {}
    """The priority of each domain, for the concurrency limit; that of others, and of no domain, is people."""
    uncounted: frozenset[str] = frozenset()
    """The domains whose responses the concurrency limit does not count."""
    denies: Callable[[str], bool] | None = None
    """Returns whether requests from the address of a client are answered 403."""
    agents: "AgentVerifier | None" = None
    """Verifies which agent sent a request."""
    challenged: frozenset[str] = frozenset()
    """The domains whose requests are answered 403 and asked for a signature, unless an agent is verified."""
    advice: AdviceResource | None = None
    """Answers requests for the traffic advice."""
    arrivals: ArrivalMeter | None = None
    """Counts the requests that are decided on, by class of agents."""
    local: Respond | None = None
    """Answers other requests that need no decision, such as for bundles."""
    error_page: str = Pages().error
    """The template of the HTML pages of errors."""
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
    def of(cls, policy: GatewayPolicy, transport: asyncio.Transport, source: str | None = None) -> "ClientView":
        """Make the view of the client of a connection; its address is `source`, if a proxy has named it."""
        name = (source,) if source is not None else transport.get_extra_info("peername")
        address = str(name[0]) if isinstance(name, tuple) else ""
        if address.startswith("::ffff:") and "." in address:
            address = address[7:]  # an IPv4 client of an IPv6 socket
        tls = transport.get_extra_info("ssl_object") is not None
        info = ClientInfo(address, proxies=policy.trusted, tls=tls)
        return cls(policy, info, policy.identify.per_connection(address))


def decide(
    record: RequestRecord, request: RequestHead, client: ClientView, counters: GatewayCounters
) -> Response | None:
    """Decide on a request by the policy of `client`, and account for it in `record`.

    Returns the response to one that is answered here; None for one to forward, at once or after `record.wait` seconds.
    """
    policy = client.policy
    if not request.forwardable:
        _check_forwarding(request, client, counters)
    if policy.denies is not None and policy.denies(_address(request, client)):
        counters.denied += 1
        record.reason = "denied"
        return _denial(accept_of(request), policy.error_page)
    if policy.advice is not None and policy.advice.is_for(request):
        counters.advice_served += 1
        record.reason = "advice"
        return policy.advice.respond(request)
    if policy.local is not None and (response := policy.local(request)) is not None:
        record.reason = "local"
        return response
    domain, identifier = policy.routes.only, client.identifier
    if domain is None or identifier is None or policy.challenged:
        record.accounting = accounting = _admit_by_route(record, request, client, counters)
    else:
        if policy.arrivals is not None:
            policy.arrivals.count(request, domain)
        record.accounting = accounting = policy.gatekeeper.admit(domain, identifier, now=record.received)
    if accounting is None or accounting.status is not Status.REJECTED:
        if policy.quota is not None and accounting is not None:
            record.quota = policy.quota(accounting)
        return _challenge(accept_of(request), policy.error_page) if record.reason else None
    record.reason = "rule"
    return _rescue(record, request, policy, counters) or policy.reject(
        accounting, now=record.received, accept=accept_of(request)
    )


def _admit_by_route(
    record: RequestRecord, request: RequestHead, client: ClientView, counters: GatewayCounters
) -> Accounting | None:
    """Decide on a request in the domains of its route; None without one, and for one that is challenged."""
    policy, known = client.policy, client.identifier
    if policy.agents is not None and len(lines := _SIGNATURES.findall(request.raw)) >= _SIGNATURE_LINES:
        key = (request.host, *lines)
        record.agent = policy.agents.cached(key, now=record.received) or policy.agents.agent_of(
            _info(request, client), policy.trusted, now=record.received, key=key
        )
        counters.signatures["verified" if record.agent else "unverified"] += 1
    identify = policy.identify if known is None else lambda _info: known
    charges = policy.routes.charges(_info(request, client, record.agent), identify)
    if policy.arrivals is not None:
        policy.arrivals.count(request, None if charges is None else charges.domain)
    if charges is None:
        return None
    if charges.domain in policy.challenged and not record.agent:
        record.reason = "challenge"
        return None
    return policy.gatekeeper.admit_all(charges, now=record.received)


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


def refusal(
    record: RequestRecord, request: RequestHead, client: ClientView, retry_after: float, counters: GatewayCounters
) -> Response:
    """Return the response to a request that the concurrency limit refuses; see `decide`."""
    policy = client.policy
    record.reason = "concurrency"
    link = policy.link(request) if policy.link is not None else b""
    return _rescue(record, request, policy, counters) or policy.refuse(
        retry_after, accept=accept_of(request), link=link
    )


def passed_request_id(request: RequestHead, client: ClientView) -> bytes:
    """Return the X-Request-Id that a trusted proxy gave a request; empty if there is none that can be passed on."""
    values = request.values(b"x-request-id") if client.info.trusted else []
    return values[0] if len(values) == 1 and _REQUEST_ID.fullmatch(values[0]) else b""


def flow_of(record: RequestRecord, request: RequestHead, client: ClientView) -> bytes:
    """Return the identifier of the client of a request, whether it has a domain or not."""
    if client.identifier is not None:
        return client.identifier
    return client.policy.identify(_info(request, client, record.agent))


def _rescue(
    record: RequestRecord, request: RequestHead, policy: GatewayPolicy, counters: GatewayCounters
) -> Response | None:
    response = policy.lifeboat(request) if policy.lifeboat is not None else None
    if response is not None:
        counters.lifeboat += 1
        record.reason = "lifeboat"
    return response


def accept_of(request: RequestHead) -> bytes | None:
    """Return the value of Accept, None without one."""
    return b", ".join(_ACCEPT.findall(request.raw)) or None


@lru_cache(64)
def _challenge(accept: bytes | None, page: str) -> Response:
    from headgate.identity import accept_signature

    response = gateway_problem(403, "this resource is for agents that sign their requests", accept, page=page)
    response.fields.append((b"accept-signature", accept_signature().encode()))
    return response


@lru_cache(64)
def _denial(accept: bytes | None, page: str) -> Response:
    return gateway_problem(403, "this client address is denied", accept, page=page)


def _address(request: RequestHead, client: ClientView) -> str:
    """Return the address of the client, which trusted proxies name."""
    return client.policy.trusted.address(_info(request, client)) if client.info.trusted else client.info.address


def _info(request: RequestHead, client: ClientView, agent: str = "") -> RequestInfo:
    path, _, query = request.target.partition(b"?")
    return _InfoOfHead(request.method, path, request.host, [], client.info.address, query, agent, head=request)


class _InfoOfHead(RequestInfo, kw_only=True):
    """What rules need of a head. Its fields are split only when one is read: that costs more than most rules."""

    head: RequestHead

    @property  # type: ignore[misc]  # it hides the attribute
    def fields(self) -> list[tuple[bytes, bytes]]:  # type: ignore[override]
        """Every field line in order: (name in lower case, value)."""
        return self.head.fields
