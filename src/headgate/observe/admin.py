"""The admin application: /livez, /readyz, /metrics and /api/state, for GET and HEAD.

It is an ASGI application on Starlette; the process that runs it chooses the listener and its limits. On a loopback
address it answers only requests for loopback names: a page in a browser whose own name was pointed at 127.0.0.1 (DNS
rebinding) reads nothing here.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

_State = TypeVar("_State")
_State_co = TypeVar("_State_co", covariant=True)

_TEXT: Final = "text/plain; charset=utf-8"
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff", "connection": "close"}
"""One request per connection: the listener closes connections that have been open for long, in use or not."""
_HOST: Final = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.\-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_MESSAGES: Final = {
    HTTPStatus.NOT_FOUND: "not found; the paths are /livez, /readyz, /metrics and /api/state",
    HTTPStatus.METHOD_NOT_ALLOWED: "only GET and HEAD are supported",
}


Collect: TypeAlias = Callable[[_State], Iterable[Metric]]
"""Makes metrics of a state."""


class ReadState(Protocol[_State_co]):
    """Reads the state of a server."""

    async def __call__(self, *, whole: bool) -> _State_co:
        """Return the state; the parts that take long, and that no metric needs, only with `whole`."""


Readiness = Callable[[], str]
"""Returns why requests are not accepted; empty when they are."""


class Metrics(Generic[_State]):
    """Writes the metrics that `collect` makes of a state, and those of the process."""

    def __init__(self, collect: Collect[_State]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._states = _States(collect)
        self._registry.register(self._states)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def write(self, state: _State, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics of `state` in the format that `accept` asks for, and their media type.

        OpenMetrics, unless only the older format is accepted.
        """
        self._states.state = state
        if "text/plain" in accept and "application/openmetrics-text" not in accept:
            return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_LATEST
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]  # theirs has none
        return text, openmetrics.CONTENT_TYPE_LATEST


class _States(Collector, Generic[_State]):
    """Collects the metrics of `state`."""

    def __init__(self, collect: Collect[_State]) -> None:
        self.state: _State | None = None
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return () if self.state is None else self._collect(self.state)


def admin_application(
    state: ReadState[_State],
    unready: Readiness,
    collect: Collect[_State],
    *,
    to_json: Callable[[_State], object] | None = None,
    addresses: Sequence[tuple[str, int]] = (),
    on_error: Callable[[Exception], None] = lambda _error: None,
) -> Starlette:
    """Build the application for a server with that `state`, which accepts nothing as long as `unready` returns why.

    /metrics shows the metrics that `collect` makes of the state, /api/state the result of `to_json`, or else the state
    itself. `addresses` are those of the listener; `on_error` is called with exceptions that are a defect.
    """

    async def internal_error(_request: Request, error: Exception) -> Response:
        on_error(error)
        return _response("internal error\n", HTTPStatus.INTERNAL_SERVER_ERROR)

    metrics = Metrics(collect)

    async def livez(_request: Request) -> Response:
        return _response("alive\n")

    async def readyz(_request: Request) -> Response:
        reason = unready()
        return _response(f"{reason}\n", HTTPStatus.SERVICE_UNAVAILABLE) if reason else _response("ready\n")

    async def write_metrics(request: Request) -> Response:
        content, media_type = metrics.write(await state(whole=False), request.headers.get("accept", ""))
        return _response(content, media_type=media_type)

    async def write_state(_request: Request) -> Response:
        current = await state(whole=True)
        shown = current if to_json is None else to_json(current)
        return _response(msgspec.json.encode(shown) + b"\n", media_type="application/json")

    endpoints = {"/livez": livez, "/readyz": readyz, "/metrics": write_metrics, "/api/state": write_state}
    loopback_only = all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host, _ in addresses)
    application = Starlette(
        routes=[Route(path, endpoint, methods=["GET"]) for path, endpoint in endpoints.items()],
        middleware=[Middleware(_CheckRequest, loopback_only=loopback_only)],
        exception_handlers={HTTPException: _http_error, Exception: internal_error},
    )
    application.router.redirect_slashes = False
    return application


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    response = _response(f"{_MESSAGES.get(status, status.phrase)}\n", status)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["allow"] = "GET, HEAD"
    return response


def _response(content: str | bytes, status: int = HTTPStatus.OK, media_type: str = _TEXT) -> Response:
    return Response(content, status, _HEADERS, media_type=media_type)


class _CheckRequest:
    """Rejects requests with a body, without a valid Host, or for another name than those of this listener."""

    def __init__(self, application: ASGIApp, loopback_only: bool) -> None:  # noqa: FBT001  # Starlette passes keywords
        self._application = application
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._rejection(scope) or self._application
        await handler(scope, receive, send)

    def _rejection(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = _HOST.fullmatch(headers.get("host", "localhost"))
        if host is None:
            return _response("the Host header is invalid\n", HTTPStatus.BAD_REQUEST)
        if self._loopback_only and not _is_loopback(host["host"].lower()):
            message = "this listener answers only requests for loopback names, such as localhost and 127.0.0.1\n"
            return _response(message, HTTPStatus.MISDIRECTED_REQUEST)
        if not scope["path"].startswith("/"):
            return _response("the request target must be a path\n", HTTPStatus.BAD_REQUEST)
        if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            return _response("the request must not have a body\n", HTTPStatus.BAD_REQUEST)
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
