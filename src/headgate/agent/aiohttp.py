"""A polite client middleware for aiohttp.

A session passes each hop of a redirect through its middlewares as a request of its own, and what it sends again since a
connection proved dead. Nothing of a response's body is read here, unless its request is sent again.
"""

import asyncio
from functools import partial
from typing import Any

from headgate.advice.fetching import ADVICE_TIMEOUT, AdviceRequest, AdviceResponse
from headgate.agent.advice_client import in_task
from headgate.agent.attempt import Failure
from headgate.agent.courtesy import Courtesy, check_courtesy
from headgate.agent.transport import MAX_READ_SIZE, READ_TIMEOUT, AdviceReception, send_politely_async
from headgate.errors import MissingExtra, RetryLater
from headgate.fetch.local_errors import concerns_origin
from headgate.throttle.fields import Headers

try:
    import aiohttp
    import yarl
except ImportError:
    raise MissingExtra("aiohttp", "headgate.agent.aiohttp") from None

__all__ = ["Held", "Middleware"]


_OF_CONNECTION = ("proxy", "proxy_auth", "proxy_headers", "server_hostname", "ssl")
"""The settings of a request that are about the connection it goes over."""


class Held(RetryLater, aiohttp.ClientError):
    """A request was held, and not sent."""


class Middleware:
    """For `ClientSession(middlewares=[Middleware(courtesy)])`, last among others, so that it sees what they send.

    A held request raises `Held`, which is both `RetryLater` and `aiohttp.ClientError`, and is not sent. The time it
    waits counts for its total timeout, and for no other.

    For a request that a user waits for, pass an `interactive` middleware: `session.get(url, middlewares=[...])`. Only
    requests whose body is bytes, text, a form of texts or JSON are sent again, and not with `Expect: 100-continue`. The
    cache of a session, such as aiohttp-client-cache's, is in front of this.
    """

    def __init__(self, courtesy: Courtesy, *, interactive: bool = False) -> None:
        self._courtesy = check_courtesy(courtesy)
        self._interactive = interactive

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request when it may be sent; raises `Held` if that is too late."""
        attempt = self._courtesy.attempt(
            request.method,
            str(request.url),
            interactive=self._interactive,
            # The client waits for "100 Continue" once, and would not notice a second one.
            repeatable=isinstance(request.body, bytes | aiohttp.BytesPayload) and "Expect" not in request.headers,
            idempotent="Idempotency-Key" in request.headers,
            refusal=Held,
            start_fetch=None if not self._courtesy.fetches_advice else in_task(partial(fetch_beside, request)),
        )
        attempt.ends_with_body = True
        response = await send_politely_async(
            attempt, request, request.headers, handler, head=_head, drain=_let_go, failure=_failure_of
        )
        connection: Any = getattr(response, "connection", None)
        if connection is None:  # the body has come with the head
            attempt.ended()
        else:
            # Not at once: it may be the garbage collector that releases the connection, while this thread has a lock.
            loop = asyncio.get_running_loop()
            connection.add_callback(partial(loop.call_soon_threadsafe, attempt.ended))
        return response


def _head(response: aiohttp.ClientResponse) -> tuple[int, Headers] | None:
    return None if getattr(response, "from_cache", False) else (response.status, response.headers)


def _failure_of(_request: aiohttp.ClientRequest, error: Exception) -> Failure:
    broken = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.SocketTimeoutError)
    if not isinstance(error, broken) or not concerns_origin(error) or _is_of_proxy(error):
        return "ours"
    return "unsent" if isinstance(error, aiohttp.ClientConnectorError) else "broken"


async def _let_go(_request: aiohttp.ClientRequest, response: aiohttp.ClientResponse) -> None:
    """Release a response, after reading it to its end if it is short, so that its connection can be used again."""
    left = MAX_READ_SIZE
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            while left > 0 and not response.content.at_eof():
                left -= len(await response.content.readany())
    except (aiohttp.ClientError, TimeoutError):
        pass  # an error in it is not the next response's
    finally:
        response.release()


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
    """Fetch advice over the connection settings of a request that is to be sent; raises what failed locally.

    In a session of its own on the same connector: without the user's cookies, headers, credentials and middlewares.
    """
    connector = sent.session.connector
    if connector is None:
        raise RuntimeError("the session is closed")
    reception = AdviceReception(request)
    queue = _Queue()
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                connector_owner=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=ADVICE_TIMEOUT),
                trace_configs=[queue],
            ) as session,
            session.get(
                yarl.URL(request.url, encoded=True),
                headers=dict(request.fields),
                allow_redirects=False,
                **{name: getattr(sent, name) for name in _OF_CONNECTION},
            ) as response,
        ):
            return await reception.receive_async(response.status, _fields(response), response.content.iter_any())
    except (aiohttp.ClientError, TimeoutError) as error:
        # aiohttp raises this very class, and not one derived from it, where the connector is closed.
        is_closed = connector.closed or type(error) is aiohttp.ClientConnectionError
        return reception.failed(error, is_ours=queue.is_queued or is_closed or _is_of_proxy(error))


def _is_of_proxy(error: Exception) -> bool:
    """Return whether the client's proxy is the cause; with 5xx it says that it cannot reach the origin."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return error.status < 500
    return isinstance(error, aiohttp.ClientProxyConnectionError)


def _fields(response: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers]
