"""What the tests of both middlewares share: a limit that remembers, and one way to call either of them."""

import asyncio
import io
from collections.abc import Callable
from typing import Any, NamedTuple

from headgate.limit import ConcurrencyLimit, ConcurrencySettings
from headgate.origin import asgi, wsgi
from headgate.origin.asgi_concurrency import _call_later
from headgate.origin.permits import Permits


class Stop(BaseException):
    """An end of the process, not an error of the application."""


class Limit(ConcurrencyLimit):
    """Remembers latencies and who waited; by default a learned limit of one permit, whose clock is `now`."""

    def __init__(self, maximum: Any = "learned", **settings: Any) -> None:
        super().__init__(
            ConcurrencySettings(max=maximum, **({"ceiling": 1, "healthy_latency": 1.0} | settings)), lambda: 0.5
        )
        self.now = 1000.0
        self.latencies: list[float] = []
        self.requests: list[Any] = []

    @property
    def counts(self) -> tuple[int, int]:
        """Requests in flight, and those that wait."""
        return self.in_flight, self.state.queued

    def responded(self, latency: float) -> None:
        self.latencies.append(round(latency, 6))

    def queue(self, request: Any, *, now: float) -> Any:
        self.requests.append(request)
        return super().queue(request, now=now)


def permits(limit: Limit, **more: Any) -> Permits:
    """Return the permits of a limit, by its clock."""
    return Permits(limit, clock=lambda: limit.now, **more)


class Answer(NamedTuple):
    """The response to a request."""

    status: int
    fields: dict[str, str]
    body: bytes


Work = Callable[[Callable[..., None]], None]
"""What an application does for a request; it is given a function that sends the head, with a type of the content."""


class Middleware:
    """One of the middlewares with a limit in front of an application that does `work`."""

    def __init__(self, kind: str, work: Work, limit: Limit | None = None, **options: Any) -> None:
        self.work = work
        self.kind = kind
        limit = limit or Limit()
        self.middleware: Any
        if kind == "asgi":
            self.middleware = asgi.GatekeeperMiddleware(self._asgi, concurrency=limit, **options)
            self.middleware.concurrency._permits = permits(limit, call_later=_call_later)
        else:
            settings = ConcurrencySettings(max=1)
            self.middleware = wsgi.GatekeeperMiddleware(self._wsgi, concurrency=settings, threads=8, **options)
            self.middleware.concurrency._permits = permits(limit)

    def get(self, path: str = "/", *, accept: str = "*/*") -> Answer:
        """Send a request."""
        return asyncio.run(self._get_asgi(path, accept)) if self.kind == "asgi" else self._get_wsgi(path, accept)

    async def _asgi(self, _scope: Any, _receive: Any, send: Any) -> None:
        sends: list[Any] = []

        def begin(content_type: str = "text/plain") -> None:
            fields = [(b"content-type", content_type.encode())]
            sends.append(send({"type": "http.response.start", "status": 200, "headers": fields}))

        self.work(begin)
        await sends[0]
        await send({"type": "http.response.body", "body": b"ok"})

    async def _get_asgi(self, path: str, accept: str) -> Answer:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"accept", accept.encode())]
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "client": ("192.0.2.1", 4000)}
        await self.middleware(scope, asyncio.Event().wait, send)
        fields = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], fields, sent[1]["body"])

    def _wsgi(self, _environ: Any, start_response: Any) -> Any:
        self.work(lambda content_type="text/plain": start_response("200 OK", [("Content-Type", content_type)]))
        return [b"ok"]

    def _get_wsgi(self, path: str, accept: str) -> Answer:
        heads: list[Any] = []
        request = {**environ(path), "HTTP_ACCEPT": accept}
        content = self.middleware(request, lambda *head: heads.append(head))
        fields = {name.lower(): value for name, value in heads[0][1]}
        return Answer(int(heads[0][0][:3]), fields, b"".join(content))


def environ(path: str = "/", **more: str) -> dict[str, Any]:
    """Return the environ of a request."""
    address = {"SCRIPT_NAME": "", "PATH_INFO": path, "REMOTE_ADDR": "192.0.2.1"}
    return {"REQUEST_METHOD": "GET", **address, "wsgi.input": io.BytesIO(), **more}
