"""A polite handler for openers of the standard library's `urllib.request`.

It comes after the handlers of proxies and before those that open connections. Each hop of a redirect and each step of
an authentication is a request of its own to an opener, and comes here. Exceptions for a status of 400 and more are
raised later, so every response is seen here.
"""

import http.client
import socket
from collections.abc import Iterable
from contextlib import closing
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import BaseHandler, Request

from headgate.advice.fetching import ADVICE_TIMEOUT, AdviceRequest, AdviceResponse
from headgate.agent.advice_client import in_thread
from headgate.agent.attempt import Failure
from headgate.agent.courtesy import Courtesy, check_courtesy
from headgate.agent.transport import AdviceReception, chunks_of, is_interactive, send_politely
from headgate.errors import RetryLater
from headgate.fetch.local_errors import concerns_origin, is_refused_by_proxy
from headgate.throttle.fields import Headers

__all__ = ["Handler", "Held"]


class AdviceMessage(Request):  # noqa: S310 - its URLs are http or https, by the core
    """The request for advice: a type of its own, so that a handler of ours lets it through."""


class Held(RetryLater, URLError):  # type: ignore[misc]  # an URLError's reason may be an exception; ours is always a text
    """A request was held, and not sent."""


class _Headers:
    """The headers of a request that its redirects do not inherit."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def get(self, name: str) -> str | None:
        """Return a header."""
        return self._request.get_header(name.capitalize())

    def pop(self, name: str, _default: None) -> None:
        """Remove a header."""
        self._request.remove_header(name.capitalize())

    def update(self, fields: dict[str, str]) -> None:
        """Set headers."""
        for name, value in fields.items():
            self._request.add_unredirected_header(name, value)


class Handler(BaseHandler):
    """For `urllib.request.build_opener(Handler(courtesy))`, alone or among other handlers in any order.

    Handlers that send, such as an `HTTPSHandler` with your own TLS context, come after this one if their
    `handler_order` is greater, which is the default. Give a handler that answers requests itself, such as a cache, a
    smaller one; its responses are not counted. A held request raises `Held`, which is both `RetryLater` and `URLError`,
    and is not sent. Its timeout does not include the time that it waits.

    For a request that a user waits for, set the attribute `headgate` of the `Request` to `{"interactive": True}`. Only
    requests whose data are bytes are sent again. Do not share a handler between openers.
    """

    handler_order = 490
    """Its place: proxies have 100, and handlers that open connections 500."""

    def __init__(self, courtesy: Courtesy) -> None:
        self._courtesy = check_courtesy(courtesy)
        self._start_fetch = in_thread(lambda advice: fetch_with(self.parent, advice))

    def http_open(self, request: Request) -> Any:
        """Open a request when it may be sent; raises `Held` if that is too late."""
        if isinstance(request, AdviceMessage):
            return None  # a proxy's handler had the opener open it
        attempt = self._courtesy.attempt(
            request.get_method(),
            request.full_url,  # also that of a request which a proxy is sent
            interactive=is_interactive(getattr(request, "headgate", None)),
            repeatable=request.data is None or isinstance(request.data, bytes),
            idempotent=request.has_header("Idempotency-key"),
            refusal=Held,
            start_fetch=None if not self._courtesy.fetches_advice else self._start_fetch,
        )
        openers = self._openers_behind(request)
        return send_politely(
            attempt,
            request,
            _Headers(request),
            lambda request: _first_response(openers, request),
            head=_head,
            drain=lambda _request, response: response.close(),
            failure=_failure_of,
        )

    https_open = http_open

    def _openers_behind(self, request: Request) -> list[Any]:
        """Return the handlers that come after this one in the opener."""
        opener: Any = self.parent
        handlers: list[Any] = opener.handle_open[request.type]
        return handlers[handlers.index(self) + 1 :]


def fetch_with(opener: Any, request: AdviceRequest) -> AdviceResponse:
    """Fetch advice with the handlers of an opener that connect, so with its proxy and TLS; raises what failed locally.

    The opener itself would add cookies and its own headers, log in, and follow redirects: all that is left out here.
    """
    message = AdviceMessage(request.url, headers=dict(request.fields))
    message.timeout = ADVICE_TIMEOUT
    host = message.host
    reception = AdviceReception(request)
    try:
        response = _first_response(opener.handle_open[message.type], message)
        if response is None:
            raise RuntimeError(f"no handler of the opener opens {message.type} URLs")
        with closing(response):
            return reception.receive(response.status, response.headers.items(), chunks_of(response))
    except (OSError, http.client.HTTPException) as error:
        # A handler has put the proxy in the place of the host.
        return reception.failed(error, is_ours=message.host != host and _is_of_proxy(error))


def _first_response(handlers: Iterable[Any], request: Request) -> Any:
    """Return the response of the first handler that has one, as an opener does; None without one."""
    for handler in handlers:
        response = getattr(handler, f"{request.type}_open")(request)
        if response is not None:
            return response
    return None


def _head(response: Any) -> tuple[int, Headers] | None:
    if response is None or getattr(response, "from_cache", False):
        return None
    return response.status, response.headers.items()


def _failure_of(request: Request, error: Exception) -> Failure:
    is_proxied = request.host != urlsplit(request.full_url).netloc.rpartition("@")[2]
    of_network = isinstance(error, OSError | http.client.HTTPException)
    if not of_network or not concerns_origin(error) or (is_proxied and _is_of_proxy(error)):
        return "ours"
    return (
        "unsent" if isinstance(getattr(error, "reason", error), ConnectionRefusedError | socket.gaierror) else "broken"
    )


def _is_of_proxy(error: Exception) -> bool:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ConnectionRefusedError | socket.gaierror):
        return True
    return "Tunnel connection failed" in str(reason) and is_refused_by_proxy(reason)
