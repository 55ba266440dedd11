"""Fetching advice over the connector of the session that sends a request, with that request's proxy and TLS settings.

It is a session of its own on the same connector: without the cookies, the default headers, the credentials and the
middlewares of the user's.
"""

from typing import Any

import aiohttp
import yarl

from headgate.advice.fetching import TIMEOUT, AdviceRequest, AdviceResponse, ResponseCollector, too_late
from headgate.fetch.local_errors import is_local


class _Queue(aiohttp.TraceConfig):
    """Records whether the fetch waits for a free connection of the connector."""

    def __init__(self) -> None:
        super().__init__()
        self.is_queued = False
        self.on_connection_queued_start.append(self._begin)
        self.on_connection_queued_end.append(self._end)

    async def _begin(self, *_: object) -> None:
        self.is_queued = True

    async def _end(self, *_: object) -> None:
        self.is_queued = False


async def fetch_beside(sent: aiohttp.ClientRequest, request: AdviceRequest) -> AdviceResponse:
    """Make the request as the one that is to be sent is; raises what is a failure of this machine."""
    connector = sent.session.connector
    if connector is None:
        raise RuntimeError("the session is closed")
    collector = ResponseCollector()
    queue = _Queue()
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                connector_owner=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=TIMEOUT),
                trace_configs=[queue],
            ) as session,
            session.get(
                yarl.URL(request.url, encoded=True),
                headers=dict(request.fields),
                allow_redirects=False,
                **_connection_of(sent),
            ) as response,
        ):
            if not collector.head(response.status, _fields(response)):
                return collector.broken()
            async for chunk in response.content.iter_any():
                if not collector.add(chunk):
                    break
            return collector.whole()
    except (aiohttp.ClientError, TimeoutError) as error:
        # aiohttp raises this very class, and not one derived from it, where the connector is closed.
        is_closed = connector.closed or type(error) is aiohttp.ClientConnectionError
        if queue.is_queued or is_closed or _is_of_proxy(error) or is_local(error):
            raise
        return collector.broken(too_late() if isinstance(error, TimeoutError) else str(error) or type(error).__name__)


def _is_of_proxy(error: Exception) -> bool:
    """Return whether the client's proxy is the cause; with 5xx it says that it cannot reach the origin."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return error.status < 500
    return isinstance(error, aiohttp.ClientProxyConnectionError)


def _connection_of(sent: aiohttp.ClientRequest) -> dict[str, Any]:
    """Return the settings of a request that are about the connection it goes over."""
    names = ("proxy", "proxy_auth", "proxy_headers", "server_hostname", "ssl")
    return {name: getattr(sent, name) for name in names}


def _fields(response: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers]
