"""What both middlewares share: finding the domain and the identifier of a server's own request.

This file knows neither ASGI nor WSGI: `R` is the scope of the one or the environ of the other, and a `RequestAdapter`
reads it. The functions to call are chosen once, when the middleware is built.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from headgate.errors import ConfigurationError
from headgate.limit import Gatekeeper
from headgate.limit.concurrency import Priority
from headgate.limit.messages import short_identifier
from headgate.origin.concurrency import RequestClasses, make_priority_of
from headgate.origin.identify import Header, Identify, parse_identify
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Rejections
from headgate.origin.routes import Routes

FORGET_INTERVAL = 1.0
"""Seconds between two calls of `forget`."""

MAX_FORGOTTEN_AT_ONCE = 1_000

_MAX_NAMES_SHOWN = 8
"""Domains that an error names."""

R = TypeVar("R")

_Callable = Callable[[R], bytes | str | None]


@dataclass(frozen=True)
class RequestAdapter(Generic[R]):
    """The functions that read a server's request."""

    peer: Callable[[R], str]
    """Returns the address of the peer, empty when it has none."""

    field: Callable[[bytes], Callable[[R], bytes | None]]
    """Returns, for a field name in lower case, the function that reads its value; None when absent or repeated."""

    info: Callable[[R], RequestInfo]
    """Returns all that identifying and routing need; slower than the other two."""


def make_classifier(
    identify: Identify | _Callable[R] | str,
    domain: Routes | Callable[[R], str | None] | str,
    adapter: RequestAdapter[R],
) -> Callable[[R], tuple[str, bytes] | None]:
    """Return the function from a request to its domain and identifier, or None where no limit applies.

    `identify` is an `Identify`, a text for `parse_identify`, or a callable given the request itself; `domain` is a
    name, `Routes`, or a callable given the request itself. A callable that returns None leaves the request unlimited.
    Raises `ConfigurationError` for a text that `parse_identify` does not accept.
    """
    identifier_of = make_identifier_of(identify, adapter)
    only = domain.only if isinstance(domain, Routes) else domain
    if isinstance(only, str):

        def by_identifier(request: R) -> tuple[str, bytes] | None:
            identifier = identifier_of(request)
            return None if identifier is None else (only, identifier)

        return by_identifier
    domain_of = make_domain_of(domain, adapter)

    def by_both(request: R) -> tuple[str, bytes] | None:
        name = domain_of(request)
        identifier = None if name is None else identifier_of(request)
        return None if name is None or identifier is None else (name, identifier)

    return by_both


def check_domain(
    domain: Routes | Callable[[R], str | None] | str | None, gatekeeper: Gatekeeper | None, *, needed: bool = True
) -> Routes | Callable[[R], str | None] | str:
    """Return `domain`, or its default: the only domain of an embedded master, otherwise `"default"`.

    A gatekeeper may be None if it is not `needed`; then the default is `""`, for no domain. Raises
    `ConfigurationError` for a name or a route whose domain an embedded master does not have: it would limit nothing.
    Without an embedded master, and of a callable, the names are not known.
    """
    if not (isinstance(gatekeeper, Gatekeeper) or (gatekeeper is None and not needed)):
        hint = "; it may be left out with concurrency" if gatekeeper is None else ""
        raise ConfigurationError(f"gatekeeper must be a Gatekeeper, got {gatekeeper!r}{hint}")
    known = None if gatekeeper is None or gatekeeper.master is None else list(gatekeeper.master.domains)
    if domain is None:
        domain = "" if gatekeeper is None else known[0] if known is not None and len(known) == 1 else "default"
    if isinstance(domain, (str, Routes)):
        names = [domain] if isinstance(domain, str) else domain.domains
        for name in names:
            if known is not None and name not in known:
                raise ConfigurationError(
                    f"domain {name!r}: the gatekeeper's master does not have it; {_expected_domains(known)}"
                )
    elif not callable(domain):
        raise ConfigurationError(f"domain must be a name, Routes or a callable, got {domain!r}")
    return domain


def check_rejections(rejections: Rejections | None, gatekeeper: Gatekeeper | None) -> Rejections:
    """Return `rejections`, by default those with the domains of `gatekeeper`; raises `ConfigurationError`."""
    if rejections is None:
        return Rejections() if gatekeeper is None else Rejections.of(gatekeeper)
    if not isinstance(rejections, Rejections):
        raise ConfigurationError(
            f"rejections must be Rejections, such as Rejections.of(gatekeeper, status=429), got {rejections!r:.80}"
        )
    return rejections


def _expected_domains(known: list[str]) -> str:
    if not known:
        return "it has no domains: pass them to Gatekeeper.embedded"
    more = ", …" if len(known) > _MAX_NAMES_SHOWN else ""
    return f"expected one of {', '.join(map(repr, known[:_MAX_NAMES_SHOWN]))}{more}"


def forget(gatekeeper: Gatekeeper, *, now: float) -> None:
    """Drop some of the ended holds and, of an embedded master, some of the ended histories."""
    gatekeeper.forget(now=now, most=MAX_FORGOTTEN_AT_ONCE)
    if gatekeeper.master is not None:
        gatekeeper.master.forget(now=now, most=MAX_FORGOTTEN_AT_ONCE)


def make_domain_of(
    domain: Routes | Callable[[R], str | None] | str, adapter: RequestAdapter[R]
) -> Callable[[R], str | None]:
    """Return the function from a request to its domain, or None if it has none."""
    only = domain.only if isinstance(domain, Routes) else domain
    if isinstance(only, str):
        return lambda _request: only
    if isinstance(domain, Routes):
        routes = domain
        return lambda request: routes.match(adapter.info(request))
    return cast("Callable[[R], str | None]", domain)


def make_identifier_of(
    identify: Identify | _Callable[R] | str, adapter: RequestAdapter[R]
) -> Callable[[R], bytes | None]:
    """Return the function from a request to its identifier, or None if it has none."""
    return _identifier(parse_identify(identify) if isinstance(identify, str) else identify, adapter)


def make_request_classes(
    identify: Identify | _Callable[R] | str,
    domain: Routes | Callable[[R], str | None] | str,
    priority: Mapping[str, Priority | None] | Callable[[R], Priority | None] | None,
    adapter: RequestAdapter[R],
) -> RequestClasses[R]:
    """Return the functions that these arguments of a middleware mean; raises `ConfigurationError`."""
    return RequestClasses(
        make_domain_of(domain, adapter), make_identifier_of(identify, adapter), make_priority_of(priority, domain)
    )


def _identifier(identify: Identify | _Callable[R], adapter: RequestAdapter[R]) -> Callable[[R], bytes | None]:
    if isinstance(identify, Header):
        return _by_header(identify, adapter)
    if hasattr(identify, "per_connection"):
        return _by_info(cast("Identify", identify), adapter)
    if not callable(identify):
        raise ConfigurationError(f"identify must be a text, an Identify or a callable, got {identify!r:.80}")
    of_request = identify

    def by_callable(request: R) -> bytes | None:
        identifier = of_request(request)
        if identifier is None:
            return None
        return short_identifier(
            identifier.encode("utf-8", "surrogatepass") if isinstance(identifier, str) else identifier
        )

    return by_callable


def _by_header(identify: Header, adapter: RequestAdapter[R]) -> Callable[[R], bytes | None]:
    of, field = identify.of, adapter.field(identify.name)
    otherwise = _identifier(identify.fallback, adapter)

    def by_header(request: R) -> bytes | None:
        return of(field(request)) or otherwise(request)

    return by_header


def _by_info(identify: Identify, adapter: RequestAdapter[R]) -> Callable[[R], bytes | None]:
    per_connection, peer, info = identify.per_connection, adapter.peer, adapter.info

    def by_info(request: R) -> bytes | None:
        # Most identifiers follow from the connection alone; then the request is not read.
        return per_connection(peer(request)) or identify(info(request))

    return by_info
