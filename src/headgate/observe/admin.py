"""The admin application: /livez, /readyz, /metrics, /api/state, and the dashboard at /, for GET and HEAD.

The dashboard is static files, and the event stream /events (see `headgate.observe.feed`).

It is an ASGI application; the process that runs it chooses the listener and its limits. A page in a browser whose own
name was pointed at this listener (DNS rebinding) reads nothing here: requests must be for a name that no other site can
have, or for one that is configured. On a loopback address these are the loopback names; elsewhere addresses, names
without a dot and this machine's own. There, programs such as Prometheus may read the probes by any name.
"""

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from platform import node
from types import SimpleNamespace
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from headgate.errors import ConfigurationError, HeadgateError
from headgate.observe.feed import Feed, Overviewed
from headgate.observe.state import ServerState, process_metrics, server_metrics

_State = TypeVar("_State")

_TEXT: Final = "text/plain; charset=utf-8"
_HEADERS: Final = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"connection", b"close"),
]
"""One request per connection: the listener closes connections that have been open for long, in use or not."""
_FILES: Final = Path(__file__).with_name("dashboard")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The media types of the files of the dashboard; others are not served."""
_HOST: Final = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.\-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_PROBES: Final = ("/livez", "/readyz", "/metrics")
_READS: Final = ("why", "holds")
_ACTS: Final = ("release", "hold", "mode", "drain")
_OF_PROXIES: Final = frozenset((b"forwarded", b"x-forwarded-for", b"via"))
_OF_BROWSERS: Final = frozenset((b"origin", b"sec-fetch-site"))

Scope: TypeAlias = dict[str, Any]
"""A request, as ASGI describes it."""


class Answer(NamedTuple):
    """What an endpoint answers."""

    content: str | bytes
    status: HTTPStatus = HTTPStatus.OK
    media_type: str = _TEXT
    events: "asyncio.Queue[bytes] | None" = None
    """What follows the content, until an empty event."""


Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Endpoint: TypeAlias = Callable[[Scope], Awaitable[Answer]]
"""Answers requests for one path."""


class Control(NamedTuple):
    """What answers `headgate ctl`: for GET /control/why and /control/holds, and POST for the acts."""

    run: Callable[[str, dict[str, str], str], Awaitable[Any]]
    """Does what is asked, by name, arguments and peer; returns a JSON value, or raises a `HeadgateError`."""
    token: Callable[[], bytes] | None = None
    """Reads the token that a request must have; None: it must come from this machine."""


class AdminSource(Overviewed, Protocol[_State]):
    """What is administered: a server."""

    async def state(self, *, whole: bool) -> _State:
        """Return the state; the parts that take long, and that no metric needs, only with `whole`."""

    def metrics(self, state: _State) -> Iterable[Metric]:
        """Make the metrics of a state."""

    def to_json(self, state: _State) -> object:
        """Return what /api/state shows of a state."""


class MetricsWriter:
    """Writes metrics, and those of the processes."""

    def __init__(self) -> None:
        self._process = CollectorRegistry(auto_describe=False)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)

    def write(self, metrics: Iterable[Metric], server: ServerState, accept: str = "") -> tuple[bytes, str]:
        """Return `metrics` and those of a server in the format that `accept` asks for, and their media type.

        OpenMetrics, unless only the older format is accepted.
        """
        processes = process_metrics(self._process.collect(), server.workers)
        every: Any = SimpleNamespace(collect=lambda: chain(metrics, server_metrics(server), processes))
        if "text/plain" in accept and "application/openmetrics-text" not in accept:
            return exposition.generate_latest(every), exposition.CONTENT_TYPE_LATEST
        text: bytes = openmetrics.generate_latest(every)  # type: ignore[no-untyped-call]  # theirs has none
        return text, openmetrics.CONTENT_TYPE_LATEST


class AdminApplication(Generic[_State]):
    """The application for a server, `source`. An endpoint is a row of the table in its constructor.

    `feed` is that of its dashboard. `addresses` are those of the listener, `hosts` further names that it answers to.
    `log` is called with a line for each exception that is a defect, and for the first request that has another name.
    Without `control` nothing can be changed.
    """

    def __init__(
        self,
        source: AdminSource[_State],
        feed: Feed,
        *,
        addresses: Sequence[tuple[str, int]] = (),
        hosts: Sequence[str] = (),
        control: Control | None = None,
        log: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._source = source
        self._control = control
        self._feed = feed
        self._files = {
            "/" if file.name == "index.html" else f"/{file.relative_to(_FILES)}": file
            for file in sorted(_FILES.rglob("*"))
            if file.suffix in _TYPES
        }
        self._writer = MetricsWriter()
        self._log = log
        self._hosts = {host.lower() for host in hosts}
        self._loopback_only = all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host, _ in addresses)
        self._has_logged_host = False
        self._endpoints: dict[str, Endpoint] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/api/state": self._state,
            "/events": self._events,
            **dict.fromkeys(self._files, self._file),
        }
        self._acts = [f"/control/{name}" for name in _ACTS if control is not None]
        reads = [f"/control/{name}" for name in _READS if control is not None]
        self._endpoints |= dict.fromkeys([*reads, *self._acts], self._run_control)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            answer = self._refuse(scope, headers) or await self._endpoints[scope["path"]](scope)
        except Exception as error:
            self._log(f"internal error in the admin listener: {error!r}")
            answer = Answer("internal error\n", HTTPStatus.INTERNAL_SERVER_ERROR)
        content = answer.content.encode() if isinstance(answer.content, str) else answer.content
        more = [
            (b"content-type", answer.media_type.encode()),
            (b"date", formatdate(usegmt=True).encode()),  # `headgate doctor` compares clocks
        ]
        if answer.events is None:
            more.append((b"content-length", b"%d" % len(content)))
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            more.append((b"allow", b"POST" if scope["path"] in self._acts else b"GET, HEAD"))
        await send({"type": "http.response.start", "status": int(answer.status), "headers": [*_HEADERS, *more]})
        if answer.events is not None:
            await self._stream(content, answer.events, scope, receive, send)
        else:
            await send({"type": "http.response.body", "body": content})

    async def _stream(
        self, event: bytes, events: "asyncio.Queue[bytes]", scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send events until the client is gone, or too slow; each that it takes extends the time of its connection."""
        watching = asyncio.ensure_future(self._end(receive, events))
        try:
            while event:
                await send({"type": "http.response.body", "body": event, "more_body": True})
                scope.get("state", {}).get("extend", lambda: None)()
                event = await events.get()
            await send({"type": "http.response.body"})
        finally:
            self._feed.viewers.pop(events, None)
            watching.cancel()

    async def _end(self, receive: Receive, events: "asyncio.Queue[bytes]") -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._feed.viewers.end(events)

    async def _file(self, scope: Scope) -> Answer:
        file = self._files[scope["path"]]
        return Answer(file.read_bytes(), media_type=_TYPES[file.suffix])

    async def _events(self, scope: Scope) -> Answer:
        queue = self._feed.viewers.join(scope["client"][0]) if scope["method"] == "GET" else None
        acts = "off" if self._control is None else "no token" if self._control.token is None else "token"
        return Answer(self._feed.history(acts), media_type="text/event-stream", events=queue)

    async def _livez(self, _scope: Scope) -> Answer:
        return Answer("alive\n")

    async def _readyz(self, _scope: Scope) -> Answer:
        reason = self._source.unready()
        return Answer(f"{reason}\n", HTTPStatus.SERVICE_UNAVAILABLE) if reason else Answer("ready\n")

    async def _metrics(self, scope: Scope) -> Answer:
        metrics = self._source.metrics(await self._source.state(whole=False))
        accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
        # In a thread, because thousands of lines would delay requests.
        content, media_type = await asyncio.to_thread(self._writer.write, metrics, self._source.server_state(), accept)
        return Answer(content, media_type=media_type)

    async def _state(self, _scope: Scope) -> Answer:
        shown = self._source.to_json(await self._source.state(whole=True))
        return Answer(msgspec.json.encode(shown) + b"\n", media_type="application/json")

    async def _run_control(self, scope: Scope) -> Answer:
        peer, path = "{}:{}".format(*scope["client"]), scope["path"]
        arguments = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        try:
            assert self._control is not None
            result, status = await self._control.run(path.removeprefix("/control/"), arguments, peer), HTTPStatus.OK
        except HeadgateError as error:
            is_wrong = isinstance(error, ConfigurationError)
            result, status = {"error": str(error)}, HTTPStatus.BAD_REQUEST if is_wrong else HTTPStatus.NOT_FOUND
        return Answer(msgspec.json.encode(result) + b"\n", status, "application/json")

    def _forbid(self, scope: Scope, headers: dict[bytes, str]) -> Answer | None:
        """Refuse a command of another page than the dashboard, or of another machine without the token.

        A browser must say that the request is of the same origin, which it does for HTTPS and loopback addresses only.
        """
        assert self._control is not None
        if b"x-headgate-control" not in headers or not _OF_PROXIES.isdisjoint(headers):
            text = "commands need the header X-Headgate-Control, and do not come through a proxy\n"
            return Answer(text, HTTPStatus.FORBIDDEN)
        is_browser = not _OF_BROWSERS.isdisjoint(headers)
        if is_browser and (self._control.token is None or not _is_same_origin(scope, headers)):
            text = "browsers may send commands from the dashboard only, and only with admin.token\n"
            return Answer(text, HTTPStatus.FORBIDDEN)
        if self._control.token is not None:
            expected, given = b"Bearer " + self._control.token(), headers.get(b"authorization", "").encode("latin-1")
            is_known = hmac.compare_digest(given, expected)
            return None if is_known else Answer("the token is missing or wrong\n", HTTPStatus.UNAUTHORIZED)
        address = ipaddress.ip_address(scope["client"][0].partition("%")[0])
        if (getattr(address, "ipv4_mapped", None) or address).is_loopback:
            return None
        return Answer("without admin.token, commands must come from this machine\n", HTTPStatus.FORBIDDEN)

    def _refuse(self, scope: Scope, headers: dict[bytes, str]) -> Answer | None:
        """Refuse a request with a body, without a valid Host, for another name than those of this listener, or path."""
        host = _HOST.fullmatch(headers.get(b"host", "localhost"))
        if host is None:
            return Answer("the Host header is invalid\n", HTTPStatus.BAD_REQUEST)
        is_control = scope["path"].startswith("/control/") and self._control is not None
        if not self._answers_to(host["host"].lower(), scope["path"], headers):
            if not self._has_logged_host:
                self._has_logged_host = True
                self._log(f"the admin listener refuses requests for the host {host['host']!r:.300}; see admin.hosts")
            names = "loopback names, such as localhost" if self._loopback_only else "addresses, names without a dot"
            message = f"this listener answers only requests for {names}, and the names in admin.hosts\n"
            return Answer(message, HTTPStatus.MISDIRECTED_REQUEST)
        if not scope["path"].startswith("/"):
            return Answer("the request target must be a path\n", HTTPStatus.BAD_REQUEST)
        if b"transfer-encoding" in headers or headers.get(b"content-length", "0") != "0":
            return Answer("the request must not have a body\n", HTTPStatus.BAD_REQUEST)
        if scope["path"] not in self._endpoints:
            paths = ", ".join(path for path in self._endpoints if path not in self._files)
            return Answer(f"not found; the paths are {paths} and /\n", HTTPStatus.NOT_FOUND)
        methods = ("POST",) if scope["path"] in self._acts else ("GET", "HEAD")
        if scope["method"] not in methods:
            supported = f"only {' and '.join(methods)} {'is' if len(methods) == 1 else 'are'} supported"
            return Answer(f"{supported}\n", HTTPStatus.METHOD_NOT_ALLOWED)
        if scope["path"] == "/events" and headers.get(b"sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return Answer("the event stream is for the dashboard only\n", HTTPStatus.FORBIDDEN)
        return self._forbid(scope, headers) if is_control else None

    def _answers_to(self, host: str, path: str, headers: dict[bytes, str]) -> bool:
        if host in self._hosts or f".{host}".endswith(".localhost"):
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(host.strip("[]")).is_loopback or not self._loopback_only
        if self._loopback_only or "." not in host or host == node().lower():
            return not self._loopback_only
        if path.startswith("/control/"):
            return self._control is not None and self._control.token is not None
        # Every browser sends Accept-Language: a page can change its value only.
        return path in _PROBES and b"accept-language" not in headers


def _is_same_origin(scope: Scope, headers: dict[bytes, str]) -> bool:
    """Whether a page of this listener sends a request; a browser sends no Origin with a GET of the same origin."""
    origin = headers.get(b"origin", "" if scope["method"] == "POST" else f"http://{headers.get(b'host')}")
    return (
        headers.get(b"sec-fetch-site") == "same-origin" and origin.lower() == f"http://{headers.get(b'host')}".lower()
    )
