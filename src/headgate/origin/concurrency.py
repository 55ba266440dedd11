"""What both middlewares share of the concurrency limit: its parameters and priorities.

This file knows neither ASGI nor WSGI, and reads no clock.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from headgate.errors import ConfigurationError
from headgate.limit.concurrency import PRIORITIES, ConcurrencyLimit, ConcurrencySettings, Priority
from headgate.origin.routes import Routes

_PEOPLE: Final[Priority] = "people"

R = TypeVar("R")
PriorityOf = Callable[[R, str], Priority | None]
"""From a request and the name of its domain to its priority; None if it is not limited."""


@dataclass(frozen=True)
class RequestClasses(Generic[R]):
    """The functions that find what a limit has to know of a request."""

    domain_of: Callable[[R], str | None]
    """Returns the name of its domain, or None."""
    identifier_of: Callable[[R], bytes | None]
    """Returns the identifier of its client, or None."""
    priority_of: PriorityOf[R] | None
    """Returns its priority; None if all requests are those of people."""

    def of(self, request: R, limited: tuple[str, bytes] | None) -> Priority | None:
        """Return the priority of a request, whose domain and identifier may be known."""
        if self.priority_of is None:
            return _PEOPLE
        return self.priority_of(request, limited[0] if limited is not None else self.domain_of(request) or "")


def make_limit(concurrency: ConcurrencyLimit | ConcurrencySettings | None) -> ConcurrencyLimit | None:
    """Return the limit that is given, one with these settings, or None if there is none to enforce or monitor."""
    if isinstance(concurrency, ConcurrencySettings):
        concurrency = ConcurrencyLimit(concurrency, random.random)
    if concurrency is None or (isinstance(concurrency, ConcurrencyLimit) and concurrency.settings.mode == "off"):
        return None
    if not isinstance(concurrency, ConcurrencyLimit):
        raise ConfigurationError(
            "concurrency must be ConcurrencySettings, such as ConcurrencySettings(max=64), or a ConcurrencyLimit, "
            f"got {concurrency!r:.80}"
        )
    return concurrency


def make_priority_of(
    priority: Mapping[str, Priority | None] | Callable[[R], Priority | None] | None,
    domain: object,
) -> PriorityOf[R] | None:
    """Return the function that finds the priority of a request, or None if all requests are those of people.

    Raises `ConfigurationError` for an unknown priority, and for a domain that is not among those of `domain`.
    """
    if priority is None:
        return None
    if isinstance(priority, Mapping):
        priorities = dict(priority)
        known = [domain] if isinstance(domain, str) else domain.domains if isinstance(domain, Routes) else None
        for name, value in priorities.items():
            _check(value, f"the priority of domain {name!r}")
            if known is not None and name not in known:
                raise ConfigurationError(
                    f"priority: unknown domain {name!r}; expected one of {', '.join(map(repr, known)) or 'none'}"
                )
        return lambda _request, name: priorities.get(name, _PEOPLE)
    if not callable(priority):
        raise ConfigurationError(f"priority must be a mapping or a callable, got {priority!r:.80}")
    of_request = priority

    def by_callable(request: R, _name: str) -> Priority | None:
        return _check(of_request(request), "the priority of a request")

    return by_callable


def _check(priority: Priority | None, what: str) -> Priority | None:
    if priority is not None and priority not in PRIORITIES:
        expected = ", ".join(map(repr, PRIORITIES))
        raise ConfigurationError(f"{what} must be one of {expected}, or None, got {priority!r:.80}")
    return priority
