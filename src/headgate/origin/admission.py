"""What the middleware of both kinds share: from a server's own request to what the gatekeeper is asked.

This file knows neither ASGI nor WSGI: `R` is the scope of the one or the environ of the other, and a `Reading` says
how to read it. Choices are made once, when the middleware is built; per request only what they left is called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from headgate.limit import Gatekeeper
from headgate.origin.head import Head
from headgate.origin.identify import Header, Identify, parse_identify, short_identifier
from headgate.origin.routes import Routes

__all__ = ["FORGET_EVERY", "Reading", "forget", "questions"]

FORGET_EVERY = 1.0
"""Seconds between two times that a middleware lets its gatekeeper forget what is over."""

_FORGET_AT_ONCE = 1_000

R = TypeVar("R")

_Callable = Callable[[R], bytes | str | None]


@dataclass(frozen=True)
class Reading(Generic[R]):
    """How to read a server's request."""

    peer: Callable[[R], str]
    """The address at the other end, empty when it has none."""

    field: Callable[[bytes], Callable[[R], bytes | None]]
    """From a field's name, in lower case, to the function that gives its value; None when absent or repeated."""

    head: Callable[[R], Head]
    """All of it: dearer than the other two."""


def questions(
    identify: Identify | _Callable[R] | str, domain: Routes | Callable[[R], str | None] | str, reading: Reading[R]
) -> Callable[[R], tuple[str, bytes] | None]:
    """Return the function from a request to what the gatekeeper is asked: a domain and an identifier, or None.

    `identify` is an `Identify`, a text for `parse_identify`, or a callable given the request itself; `domain` is a
    name, `Routes`, or a callable given the request itself. A callable that answers None leaves the request unlimited.
    Raises `ConfigurationError` for a text that is no way to identify.
    """
    identifier_of = _identifier(parse_identify(identify) if isinstance(identify, str) else identify, reading)
    only = domain.only if isinstance(domain, Routes) else domain
    if isinstance(only, str):

        def one_domain(request: R) -> tuple[str, bytes] | None:
            identifier = identifier_of(request)
            return None if identifier is None else (only, identifier)

        return one_domain
    domain_of = _domain(domain, reading)

    def by_request(request: R) -> tuple[str, bytes] | None:
        name = domain_of(request)
        identifier = None if name is None else identifier_of(request)
        return None if name is None or identifier is None else (name, identifier)

    return by_request


def forget(gatekeeper: Gatekeeper, *, now: float) -> None:
    """Drop the holds that are over and, of a master inside, some of the histories that hold nobody any more."""
    gatekeeper.forget(now=now, most=_FORGET_AT_ONCE)
    if gatekeeper.master is not None:
        gatekeeper.master.forget(now=now, most=_FORGET_AT_ONCE)


def _domain(domain: Routes | Callable[[R], str | None] | str, reading: Reading[R]) -> Callable[[R], str | None]:
    if isinstance(domain, Routes):
        return lambda request: domain.match(reading.head(request))
    return cast("Callable[[R], str | None]", domain)


def _identifier(identify: Identify | _Callable[R], reading: Reading[R]) -> Callable[[R], bytes | None]:
    if isinstance(identify, Header):
        return _by_header(identify, reading)
    if hasattr(identify, "per_connection"):
        return _by_head(cast("Identify", identify), reading)
    of_request = identify

    def asked(request: R) -> bytes | None:
        answer = of_request(request)
        if answer is None:
            return None
        return short_identifier(answer.encode("utf-8", "surrogatepass") if isinstance(answer, str) else answer)

    return asked


def _by_header(identify: Header, reading: Reading[R]) -> Callable[[R], bytes | None]:
    of, field = identify.of, reading.field(identify.name)
    otherwise = _identifier(identify.fallback, reading)

    def read(request: R) -> bytes | None:
        return of(field(request)) or otherwise(request)

    return read


def _by_head(identify: Identify, reading: Reading[R]) -> Callable[[R], bytes | None]:
    per_connection, peer, head = identify.per_connection, reading.peer, reading.head

    def known(request: R) -> bytes | None:
        # Most identifiers follow from the connection alone, which spares reading the head.
        return per_connection(peer(request)) or identify(head(request))

    return known
