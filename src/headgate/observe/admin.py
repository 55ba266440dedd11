"""The admin application: /livez, /readyz, /metrics and /api/state, and a page with links to them, for GET and HEAD.

It is an ASGI application; the process that runs it chooses the listener and its limits. On a loopback address it
answers only requests for loopback names, and for those that are configured: a page in a browser whose own name was
pointed at 127.0.0.1 (DNS rebinding) reads nothing here.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

_State = TypeVar("_State")
_State_co = TypeVar("_State_co", covariant=True)

_TEXT: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_HEADERS: Final = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"connection", b"close"),
]
"""One request per connection: the listener closes connections that have been open for long, in use or not."""
_HOST: Final = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.\-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>headgate</title>
<h1>headgate</h1>
<ul>
<li><a href="/livez">/livez</a>: the process answers
<li><a href="/readyz">/readyz</a>: 200 if clients are accepted, otherwise 503 and the reason
<li><a href="/metrics">/metrics</a>: counters and gauges, for Prometheus
<li><a href="/api/state">/api/state</a>: domains, holds and connections as JSON
</ul>
</html>
"""

Collect: TypeAlias = Callable[[_State], Iterable[Metric]]
"""Makes metrics of a state."""


class ReadState(Protocol[_State_co]):
    """Reads the state of a server."""

    async def __call__(self, *, whole: bool) -> _State_co:
        """Return the state; the parts that take long, and that no metric needs, only with `whole`."""


class Metrics(Collector, Generic[_State]):
    """Writes the metrics that `collect` makes of a state, and those of the process."""

    def __init__(self, collect: Collect[_State]) -> None:
        self._collect_of = collect
        self._found: Iterable[Metric] = ()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the state that is written."""
        return self._found

    def write(self, state: _State, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics of `state` in the format that `accept` asks for, and their media type.

        OpenMetrics, unless only the older format is accepted.
        """
        self._found = self._collect_of(state)
        if "text/plain" in accept and "application/openmetrics-text" not in accept:
            return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_LATEST
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]  # theirs has none
        return text, openmetrics.CONTENT_TYPE_LATEST


class _Answer(NamedTuple):
    content: str | bytes
    status: HTTPStatus = HTTPStatus.OK
    media_type: str = _TEXT


class AdminApplication(Generic[_State]):
    """The application for a server with that `state`, which accepts nothing as long as `unready` returns why.

    /metrics shows the metrics that `collect` makes of the state, /api/state the result of `to_json`, or else the state
    itself. `addresses` are those of the listener, `hosts` further names that a listener on loopback answers to. `log`
    is called with a line for each exception that is a defect, and for the first request that has another name.
    """

    def __init__(
        self,
        state: ReadState[_State],
        unready: Callable[[], str],
        collect: Collect[_State],
        *,
        to_json: Callable[[_State], object] | None = None,
        addresses: Sequence[tuple[str, int]] = (),
        hosts: Sequence[str] = (),
        log: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._read_state = state
        self._unready = unready
        self._metrics = Metrics(collect)
        self._to_json = to_json
        self._log = log
        self._hosts = {host.lower() for host in hosts}
        self._loopback_only = all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host, _ in addresses)
        self._has_logged_host = False

    async def __call__(
        self, scope: dict[str, Any], _receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> None:
        """Answer a request."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            refusal = self._refuse(scope["path"], headers)
            answer = refusal or await self._answer(scope["method"], scope["path"], headers.get(b"accept", ""))
        except Exception as error:
            self._log(f"internal error in the admin listener: {error!r}")
            answer = _Answer("internal error\n", HTTPStatus.INTERNAL_SERVER_ERROR)
        content = answer.content.encode() if isinstance(answer.content, str) else answer.content
        more = [(b"content-type", answer.media_type.encode()), (b"content-length", b"%d" % len(content))]
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            more.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": int(answer.status), "headers": [*_HEADERS, *more]})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, method: str, path: str, accept: str) -> _Answer:
        if path not in {"/", "/livez", "/readyz", "/metrics", "/api/state"}:
            message = "not found; the paths are /livez, /readyz, /metrics and /api/state\n"
            return _Answer(message, HTTPStatus.NOT_FOUND)
        if method not in {"GET", "HEAD"}:
            return _Answer("only GET and HEAD are supported\n", HTTPStatus.METHOD_NOT_ALLOWED)
        if path == "/readyz":
            reason = self._unready()
            return _Answer(f"{reason}\n", HTTPStatus.SERVICE_UNAVAILABLE) if reason else _Answer("ready\n")
        if path == "/metrics":
            content, media_type = self._metrics.write(await self._read_state(whole=False), accept)
            return _Answer(content, media_type=media_type)
        if path == "/api/state":
            state = await self._read_state(whole=True)
            shown = state if self._to_json is None else self._to_json(state)
            return _Answer(msgspec.json.encode(shown) + b"\n", media_type="application/json")
        return _Answer("alive\n") if path == "/livez" else _Answer(_PAGE, media_type=_HTML)

    def _refuse(self, path: str, headers: dict[bytes, str]) -> _Answer | None:
        """Refuse a request with a body, without a valid Host, or for another name than those of this listener."""
        host = _HOST.fullmatch(headers.get(b"host", "localhost"))
        if host is None:
            return _Answer("the Host header is invalid\n", HTTPStatus.BAD_REQUEST)
        if self._loopback_only and not self._is_known(host["host"].lower()):
            if not self._has_logged_host:
                self._has_logged_host = True
                self._log(f"the admin listener refuses requests for the host {host['host']!r:.300}; see admin.hosts")
            message = "this listener answers only requests for loopback names, such as localhost, and for admin.hosts\n"
            return _Answer(message, HTTPStatus.MISDIRECTED_REQUEST)
        if not path.startswith("/"):
            return _Answer("the request target must be a path\n", HTTPStatus.BAD_REQUEST)
        if b"transfer-encoding" in headers or headers.get(b"content-length", "0") != "0":
            return _Answer("the request must not have a body\n", HTTPStatus.BAD_REQUEST)
        return None

    def _is_known(self, host: str) -> bool:
        with suppress(ValueError):
            return ipaddress.ip_address(host.strip("[]")).is_loopback or host in self._hosts
        return f".{host}".endswith(".localhost") or host in self._hosts
