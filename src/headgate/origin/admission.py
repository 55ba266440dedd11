"""What the middleware of both kinds share: from a server's own request to what the gatekeeper is asked.

This file knows neither ASGI nor WSGI: `R` is the scope of the one or the environ of the other, and two functions
read it. Choices are made once, when the middleware is built; per request only what they left is called.
"""

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from headgate.origin.head import Head
from headgate.origin.identify import Identify, parse_identify, short_identifier
from headgate.origin.routes import Routes

__all__ = ["Admission"]

R = TypeVar("R")

_Callable = Callable[[R], bytes | str | None]


class Admission(Generic[R]):
    """Names the domain and the identifier of a request.

    `identify` is an `Identify`, a text for `parse_identify`, or a callable given the request itself; `domain` is a
    name, `Routes`, or a callable given the request itself. A callable that answers None leaves the request unlimited.
    `peer` and `head` read a request. Raises `ConfigurationError` for a text that is no way to identify.
    """

    def __init__(
        self,
        identify: Identify | _Callable[R] | str,
        domain: Routes | Callable[[R], str | None] | str,
        *,
        peer: Callable[[R], str],
        head: Callable[[R], Head],
    ) -> None:
        self._identifier = _identifier(parse_identify(identify) if isinstance(identify, str) else identify, peer, head)
        self._only = domain if isinstance(domain, str) else domain.only if isinstance(domain, Routes) else None
        self._domain = _domain(domain, head)

    def question(self, request: R) -> tuple[str, bytes] | None:
        """Return the domain and the identifier that the gatekeeper is to be asked about; None: not limited."""
        domain = self._only or self._domain(request)
        if domain is None:
            return None
        identifier = self._identifier(request)
        return None if identifier is None else (domain, identifier)


def _identifier(
    identify: Identify | _Callable[R], peer: Callable[[R], str], head: Callable[[R], Head]
) -> Callable[[R], bytes | None]:
    per_connection: Callable[[str], bytes | None] | None = getattr(identify, "per_connection", None)
    if per_connection is None:
        of_request = cast("_Callable[R]", identify)

        def asked(request: R) -> bytes | None:
            answer = of_request(request)
            if answer is None:
                return None
            return short_identifier(answer.encode("utf-8", "surrogatepass") if isinstance(answer, str) else answer)

        return asked
    of_head = cast("Identify", identify)

    def known(request: R) -> bytes:
        # Most identifiers follow from the connection alone, which spares reading the head.
        return per_connection(peer(request)) or of_head(head(request))

    return known


def _domain(domain: Routes | Callable[[R], str | None] | str, head: Callable[[R], Head]) -> Callable[[R], str | None]:
    if isinstance(domain, str):
        return lambda _request: domain
    if isinstance(domain, Routes):
        return lambda request: domain.match(head(request))
    return domain
