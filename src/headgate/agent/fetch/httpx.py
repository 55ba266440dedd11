"""Fetching advice through the transport that a client of httpx2 or httpx sends its requests with.

So the client's proxy, certificate authorities and certificates apply. Cookies, credentials and redirects are the
client's part, not its transport's: none of them is in the request.
"""

import time
from collections.abc import Callable
from contextlib import aclosing, closing
from types import ModuleType
from typing import Any, Final

from headgate.advice.fetching import TIMEOUT, AdviceRequest, AdviceResponse, ResponseCollector, too_late
from headgate.errors import NoContact
from headgate.fetch.local_errors import is_local, is_refused_by_proxy

ADVICE_EXTENSION: Final = "headgate_advice"
"""The extension of a request for advice, for transports that treat it in another way."""

_POOL_TIMEOUT: Final = TIMEOUT / 2
"""Seconds to wait for a free connection: less than the whole, so that a full pool is not taken for a silent origin."""


def fetch_through(
    transport: Any, request: AdviceRequest, *, library: ModuleType, is_closed: Callable[[], bool]
) -> AdviceResponse:
    """Make the request with a transport of `library`; raises what is a failure of this machine."""
    collector = ResponseCollector()
    deadline = time.monotonic() + TIMEOUT
    try:
        with closing(transport.handle_request(_message(request, library))) as response:
            if not collector.head(response.status_code, _fields(response)):
                return collector.broken()
            for chunk in response.stream:
                if not collector.add(chunk):
                    break
                if time.monotonic() > deadline:
                    return collector.broken(too_late())
        return collector.whole()
    except library.TransportError as error:
        return _failed(error, collector, library, is_closed=is_closed())


async def fetch_through_async(
    transport: Any, request: AdviceRequest, *, library: ModuleType, is_closed: Callable[[], bool]
) -> AdviceResponse:
    """Make the request with an asynchronous transport of `library`; raises what is a failure of this machine."""
    import anyio

    collector = ResponseCollector()
    try:
        with anyio.fail_after(TIMEOUT):
            async with aclosing(await transport.handle_async_request(_message(request, library))) as response:
                if not collector.head(response.status_code, _fields(response)):
                    return collector.broken()
                async for chunk in response.stream:
                    if not collector.add(chunk):
                        break
            return collector.whole()
    except TimeoutError:
        return collector.broken(too_late())
    except library.TransportError as error:
        return _failed(error, collector, library, is_closed=is_closed())


def _failed(error: Exception, collector: ResponseCollector, library: ModuleType, *, is_closed: bool) -> AdviceResponse:
    """Return what was received before a failure of the origin; raises one of this machine, or of the client's proxy."""
    ours = (library.PoolTimeout, library.UnsupportedProtocol, library.LocalProtocolError, NoContact)
    of_proxy = isinstance(error, library.ProxyError) and is_refused_by_proxy(error)
    if is_closed or of_proxy or isinstance(error, ours) or is_local(error):
        raise error
    return collector.broken(str(error) or type(error).__name__)


def _message(request: AdviceRequest, library: ModuleType) -> Any:
    timeout = library.Timeout(TIMEOUT, pool=_POOL_TIMEOUT).as_dict()
    extensions = {"timeout": timeout, ADVICE_EXTENSION: True}
    return library.Request("GET", request.url, headers=list(request.fields), extensions=extensions)


def _fields(response: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
