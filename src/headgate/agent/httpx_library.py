"""httpx2 and classic httpx: two libraries with one interface, distinguished by the objects that they pass.

Nothing here is imported before it is needed, so either library alone is enough. A client takes only responses of its
own library, so a response is made with the library of its request. Advice is fetched through a transport of either:
cookies, credentials and redirects are the client's part, so the request has none.
"""

import sys
from collections.abc import Callable
from contextlib import aclosing, closing
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.advice.fetching import ADVICE_TIMEOUT, AdviceRequest, AdviceResponse
from headgate.agent.attempt import Failure
from headgate.agent.transport import AdviceReception
from headgate.errors import ConfigurationError, MissingExtra
from headgate.fetch.local_errors import concerns_origin, is_refused_by_proxy

if TYPE_CHECKING:
    import httpx
    import httpx2

    Client: TypeAlias = httpx2.Client | httpx.Client
    AsyncClient: TypeAlias = httpx2.AsyncClient | httpx.AsyncClient
    Request: TypeAlias = httpx2.Request | httpx.Request
    Response: TypeAlias = httpx2.Response | httpx.Response
else:
    Client = AsyncClient = Request = Response = Any


_NAMES: Final = ("httpx2", "httpx")

ADVICE_EXTENSION: Final = "headgate_advice"
"""The extension of a request for advice, for transports that treat it in another way."""

_POOL_TIMEOUT: Final = ADVICE_TIMEOUT / 2
"""Seconds to wait for a free connection: less than the whole, so that a full pool is not taken for a silent origin."""


def library_of(thing: object) -> ModuleType:
    """Return the library a request, client or transport is made of; raises `ConfigurationError` for anything else."""
    return _library_of_class(type(thing))  # type: ignore[arg-type]  # a class is hashable, whatever its objects are


@cache
def _library_of_class(given: type) -> ModuleType:
    for kind in given.__mro__:
        name = kind.__module__.partition(".")[0]
        if name in _NAMES:
            return sys.modules[name]
    raise ConfigurationError(f"a {given.__qualname__} is neither of httpx2 nor of httpx; give one of theirs")


def default_library(purpose: str) -> ModuleType:
    """Import httpx2, or httpx where only that is installed; raises `MissingExtra` where neither is."""
    try:
        import httpx2
    except ImportError:
        try:
            import httpx
        except ImportError:
            raise MissingExtra("httpx2", purpose) from None
        return httpx
    return httpx2


def fetch_through(
    transport: Any, request: AdviceRequest, *, library: ModuleType, is_closed: Callable[[], bool]
) -> AdviceResponse:
    """Fetch advice with a transport of `library`, so with its proxy and TLS settings; raises what failed locally."""
    reception = AdviceReception(request)
    try:
        with closing(transport.handle_request(_message(request, library))) as response:
            return reception.receive(response.status_code, _fields(response), response.stream)
    except library.TransportError as error:
        return reception.failed(error, is_ours=is_closed() or _is_ours(error, library))


async def fetch_through_async(
    transport: Any, request: AdviceRequest, *, library: ModuleType, is_closed: Callable[[], bool]
) -> AdviceResponse:
    """Do the same with an asynchronous transport."""
    import anyio

    reception = AdviceReception(request)
    try:
        with anyio.fail_after(ADVICE_TIMEOUT):
            async with aclosing(await transport.handle_async_request(_message(request, library))) as response:
                return await reception.receive_async(response.status_code, _fields(response), response.stream)
    except (library.TransportError, TimeoutError) as error:
        return reception.failed(error, is_ours=is_closed() or _is_ours(error, library))


def failure_of(request: Request, error: Exception) -> Failure:
    """Return what kind of failure an exception is that a transport has raised for a request."""
    library = library_of(request)
    if not isinstance(error, library.TransportError) or _is_ours(error, library) or not concerns_origin(error):
        return "ours"
    return "unsent" if isinstance(error, (library.ConnectError, library.ConnectTimeout)) else "broken"


def _is_ours(error: Exception, library: ModuleType) -> bool:
    """Return whether a fetch failed because of the client or its proxy, which with 5xx means the origin."""
    ours = (library.PoolTimeout, library.UnsupportedProtocol, library.LocalProtocolError)
    return isinstance(error, ours) or (isinstance(error, library.ProxyError) and is_refused_by_proxy(error))


def _message(request: AdviceRequest, library: ModuleType) -> Any:
    timeout = library.Timeout(ADVICE_TIMEOUT, pool=_POOL_TIMEOUT).as_dict()
    extensions = {"timeout": timeout, ADVICE_EXTENSION: True}
    return library.Request("GET", request.url, headers=list(request.fields), extensions=extensions)


def _fields(response: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
