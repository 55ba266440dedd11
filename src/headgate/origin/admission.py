"""What both middlewares share: a request's domain, identifier and priority, the verdict by rules, and the answers.

This file knows neither ASGI nor WSGI: `R` is the scope of the one or the environ of the other, and a `RequestAdapter`
reads it. The functions to call are chosen once, when the middleware is built. Nothing here waits or locks.
"""

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from headgate.errors import ConfigurationError, fail_if
from headgate.limit import Accounting, Gatekeeper
from headgate.limit.concurrency import PRIORITIES, ConcurrencyLimit, ConcurrencySettings, Priority
from headgate.limit.gatekeeper import Charges
from headgate.limit.messages import short_identifier
from headgate.origin.identify import ByAgent, ClientAddress, Header, Identify, client_address, identify_by
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Refusals, Rejections
from headgate.origin.routes import Routes

if TYPE_CHECKING:
    from headgate.origin.agents import AgentVerifier

FORGET_INTERVAL: Final = 1.0
"""Seconds after which ended holds and histories are dropped again."""
MAX_FORGOTTEN_AT_ONCE: Final = 1_000
_MAX_NAMES_SHOWN: Final = 8
"""Domains that an error names."""
_PEOPLE: Final[Priority] = "people"

R = TypeVar("R")
IdentifyBy = Identify | Callable[[R], bytes | str | None] | str
"""An `Identify`, a text for `identify_by`, or a callable given the request itself."""
DomainBy = Routes | Callable[[R], str | None] | str
"""A name, `Routes`, or a callable given the request itself."""
Limited = tuple[str, bytes] | Charges
"""The domain and the identifier of a request, and by `Routes` what else it counts for."""
PriorityBy = Mapping[str, Priority | None] | Callable[[R], Priority | None]
"""A priority for each domain, or a callable given the request itself; None exempts a request from the limit."""


@dataclass(frozen=True)
class RequestAdapter(Generic[R]):
    """The functions that read a server's request."""

    peer: Callable[[R], str]
    """Returns the address of the peer, empty when it has none."""

    field: Callable[[bytes], Callable[[R], bytes | None]]
    """Returns, for a field name in lower case, the function that reads its value; None when absent or repeated."""

    info: Callable[[R], RequestInfo]
    """Returns all that identifying and routing need; slower than the other two."""


class Admission(Generic[R]):
    """Decides on requests as the arguments of a middleware say. Raises `ConfigurationError` for an invalid argument."""

    def __init__(
        self,
        adapter: RequestAdapter[R],
        *,
        gatekeeper: Gatekeeper | None = None,
        identify: IdentifyBy[R] = "client-address",
        domain: DomainBy[R] | None = None,
        rejections: Rejections | None = None,
        concurrency: ConcurrencyLimit | ConcurrencySettings | None = None,
        priority: PriorityBy[R] | None = None,
        agents: "AgentVerifier | None" = None,
    ) -> None:
        if isinstance(identify, str):
            identify = identify_by(identify, client_address())
        self.limit = make_limit(concurrency)
        """The concurrency limit; None if there is none to enforce or monitor."""
        self.gatekeeper = gatekeeper
        checked = check_domain(domain, gatekeeper, needed=concurrency is None)
        if agents is not None:
            adapter = replace(adapter, info=_with_agent(adapter.info, agents, identify))
            agents.named |= checked.agents() if isinstance(checked, Routes) else frozenset()
        self.rejections = check_rejections(rejections, gatekeeper)
        """Writes the answers to requests that a rule rejects."""
        self.refusals = Refusals(status=self.rejections.status)
        """Writes the answers to requests that the concurrency limit refuses."""
        needs_agents = isinstance(identify, ByAgent) or (isinstance(checked, Routes) and checked.needs_agents)
        fail_if(needs_agents and agents is None, "web-bot-auth: expected agents=AgentVerifier(['www.example.org'])")
        self._by_agent = identify if isinstance(identify, ByAgent) else None
        self.identifier_of = make_identifier_of(identify, adapter)
        """Returns the identifier of a request, or None if it has none."""
        self._domain_of = make_domain_of(checked, adapter)
        self._routes = checked if isinstance(checked, Routes) and checked.only is None else None
        self._info = adapter.info
        self._priority_of = make_priority_of(priority, checked)
        self._forget_at = 0.0

    def classify(self, request: R) -> Limited | None:
        """Return the domain and the identifier of a request; None if it has not both, and no rule applies."""
        if self._routes is not None:
            # An agent is verified once: between two times its keys may have been fetched.
            by = self._by_agent or (lambda _info: self.identifier_of(request))
            return self._routes.charges(self._info(request), by)
        name = self._domain_of(request)
        identifier = None if name is None else self.identifier_of(request)
        return None if name is None or identifier is None else (name, identifier)

    def admit(self, limited: Limited, *, now: float, max_delay: float = math.inf) -> Accounting:
        """Return the verdict on a request that was classified; needs a gatekeeper."""
        assert self.gatekeeper is not None
        if isinstance(limited, Charges):
            accounting = self.gatekeeper.admit_all(limited, now=now, max_delay=max_delay)
        else:
            accounting = self.gatekeeper.admit(*limited, now=now, max_delay=max_delay)
        if not now < self._forget_at <= now + FORGET_INTERVAL:  # also when the clock was set back
            self._forget_at = now + FORGET_INTERVAL
            self.gatekeeper.forget(now=now, most=MAX_FORGOTTEN_AT_ONCE)
            if self.gatekeeper.master is not None:
                self.gatekeeper.master.forget(now=now, most=MAX_FORGOTTEN_AT_ONCE)
        return accounting

    def priority_of(self, request: R, limited: Limited | None) -> Priority | None:
        """Return the priority of a request, whose domain may be known; None if the limit does not count it."""
        if self._priority_of is None:
            return _PEOPLE
        return self._priority_of(request, limited[0] if limited is not None else self._domain_of(request) or "")


def _with_agent(
    info_of: Callable[[R], RequestInfo], agents: "AgentVerifier", identify: object
) -> Callable[[R], RequestInfo]:
    # Behind a proxy, work that is charged to its address would be charged to all clients together.
    while isinstance(identify, ByAgent | Header):
        identify = identify.fallback
    address = identify if isinstance(identify, ClientAddress) else client_address()

    def info(request: R) -> RequestInfo:
        made = info_of(request)
        made.agent = agents.agent_of(made, address, now=time.time())
        return made

    return info


def check_domain(domain: DomainBy[R] | None, gatekeeper: Gatekeeper | None, *, needed: bool = True) -> DomainBy[R]:
    """Return `domain`, or its default: the only domain of an embedded master, otherwise `"default"`.

    A gatekeeper may be None if it is not `needed`; then the default is `""`, for no domain. Raises
    `ConfigurationError` for a name or a route whose domain an embedded master does not have: it would limit nothing.
    Without an embedded master, and of a callable, the names are not known.
    """
    hint = "; it may be left out with concurrency" if gatekeeper is None else ""
    allowed = isinstance(gatekeeper, Gatekeeper) or (gatekeeper is None and not needed)
    fail_if(not allowed, f"gatekeeper must be a Gatekeeper, got {gatekeeper!r}{hint}")
    known = None if gatekeeper is None or gatekeeper.master is None else list(gatekeeper.master.domains)
    if domain is None:
        domain = "" if gatekeeper is None else known[0] if known is not None and len(known) == 1 else "default"
    if isinstance(domain, (str, Routes)):
        for name in [domain] if isinstance(domain, str) else domain.domains:
            fail_if(
                known is not None and name not in known,
                f"domain {name!r}: the gatekeeper's master does not have it; {_expected_domains(known or [])}",
            )
    else:
        fail_if(not callable(domain), f"domain must be a name, Routes or a callable, got {domain!r}")
    return domain


def check_rejections(rejections: Rejections | None, gatekeeper: Gatekeeper | None) -> Rejections:
    """Return `rejections`, by default those with the domains of `gatekeeper`; raises `ConfigurationError`."""
    if rejections is None:
        return Rejections() if gatekeeper is None else Rejections.of(gatekeeper)
    fail_if(
        not isinstance(rejections, Rejections),
        f"rejections must be Rejections, such as Rejections.of(gatekeeper, status=429), got {rejections!r:.80}",
    )
    return rejections


def _expected_domains(known: list[str]) -> str:
    if not known:
        return "it has no domains: pass them to Gatekeeper.embedded"
    more = ", …" if len(known) > _MAX_NAMES_SHOWN else ""
    return f"expected one of {', '.join(map(repr, known[:_MAX_NAMES_SHOWN]))}{more}"


def make_domain_of(domain: DomainBy[R], adapter: RequestAdapter[R]) -> Callable[[R], str | None]:
    """Return the function from a request to its domain, or None if it has none."""
    only = domain.only if isinstance(domain, Routes) else domain
    if isinstance(only, str):
        return lambda _request: only
    if isinstance(domain, Routes):
        routes = domain
        return lambda request: routes.match(adapter.info(request))
    return cast("Callable[[R], str | None]", domain)


def make_identifier_of(
    identify: Identify | Callable[[R], bytes | str | None], adapter: RequestAdapter[R]
) -> Callable[[R], bytes | None]:
    """Return the function from a request to its identifier, or None if it has none."""
    if isinstance(identify, Header):
        of, field = identify.of, adapter.field(identify.name)
        otherwise = make_identifier_of(identify.fallback, adapter)
        return lambda request: of(field(request)) or otherwise(request)
    if hasattr(identify, "per_connection"):
        per_connection, of_info = identify.per_connection, cast("Identify", identify)
        peer, info = adapter.peer, adapter.info
        # Most identifiers follow from the connection alone; then the request is not read.
        return lambda request: per_connection(peer(request)) or of_info(info(request))
    fail_if(not callable(identify), f"identify must be a text, an Identify or a callable, got {identify!r:.80}")
    of_request = identify

    def by_callable(request: R) -> bytes | None:
        identifier = of_request(request)
        if isinstance(identifier, str):
            identifier = identifier.encode("utf-8", "surrogatepass")
        return None if identifier is None else short_identifier(identifier)

    return by_callable


def make_limit(concurrency: ConcurrencyLimit | ConcurrencySettings | None) -> ConcurrencyLimit | None:
    """Return the limit that is given, one with these settings, or None if there is none to enforce or monitor."""
    if isinstance(concurrency, ConcurrencySettings):
        concurrency = ConcurrencyLimit(concurrency, random.random)
    fail_if(
        concurrency is not None and not isinstance(concurrency, ConcurrencyLimit),
        "concurrency must be ConcurrencySettings, such as ConcurrencySettings(max=64), or a ConcurrencyLimit, "
        f"got {concurrency!r:.80}",
    )
    return None if concurrency is None or concurrency.settings.mode == "off" else concurrency


def make_priority_of(priority: PriorityBy[R] | None, domain: object) -> Callable[[R, str], Priority | None] | None:
    """Return the function from a request and its domain to its priority; None if all requests are those of people.

    Raises `ConfigurationError` for an unknown priority, and for a domain that is not among those of `domain`.
    """
    if priority is None:
        return None
    if isinstance(priority, Mapping):
        priorities = dict(priority)
        known = [domain] if isinstance(domain, str) else domain.domains if isinstance(domain, Routes) else priorities
        for name, value in priorities.items():
            _check(value, f"the priority of domain {name!r}")
            fail_if(
                name not in known,
                f"priority: unknown domain {name!r}; expected one of {', '.join(map(repr, known)) or 'none'}",
            )
        return lambda _request, name: priorities.get(name, _PEOPLE)
    fail_if(not callable(priority), f"priority must be a mapping or a callable, got {priority!r:.80}")
    of_request = priority
    return lambda request, _name: _check(of_request(request), "the priority of a request")


def _check(priority: Priority | None, what: str) -> Priority | None:
    if priority is not None and priority not in PRIORITIES:
        expected = ", ".join(map(repr, PRIORITIES))
        raise ConfigurationError(f"{what} must be one of {expected}, or None, got {priority!r:.80}")
    return priority
