"""ASGI middleware: rules and the concurrency limit in front of an application, for `http` and `websocket` scopes.

Pure ASGI on asyncio: bodies stream through unchanged. The gatekeeper is used from the event loop only, so no lock is
needed.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headgate.limit import Accounting, Gatekeeper
from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings
from headgate.origin.admission import Admission, DomainBy, IdentifyBy, PriorityBy, RequestAdapter
from headgate.origin.asgi_concurrency import App, AsgiConcurrency, send_response
from headgate.origin.delay import Delay
from headgate.origin.read_ahead import ReadAhead, Receive, Scope, Send
from headgate.origin.request_info import RequestInfo, field_value
from headgate.origin.response import Rejections, Response
from headgate.release import Status

if TYPE_CHECKING:
    from headgate.origin.agents import AgentVerifier

__all__ = ["GatekeeperMiddleware"]

_DELAYED, _REJECTED = Status.DELAYED, Status.REJECTED
_TRY_AGAIN_LATER = 1013
"""The WebSocket close code "try again later"."""


class GatekeeperMiddleware:
    """Passes a request to `app` when the gatekeeper allows it, and the concurrency limit has a permit for it.

    Accepted requests go on at once, delayed ones at their release, rejected ones are answered here with 503 and
    `Retry-After`. `identify` is `"client-address"`, `"header:NAME"`, an `Identify`, or a callable from the scope to
    bytes, text or None; `domain` is a name, `Routes`, or a callable from the scope to a name or None. A callable
    that returns None leaves the request without rules; totals are kept for each name, so clients must not choose
    it. Without `domain`, requests belong to the only domain of the gatekeeper's embedded master, or to `"default"`
    if it has several or there is none. `rejections` writes the rejections; by default with the domains of that
    master. Raises `ConfigurationError` for a domain that it does not have.

    `concurrency` limits the requests that are in flight in `app`: a `ConcurrencyLimit`, or the settings of one. It
    needs no gatekeeper. Others wait in its queue, or are rejected. A request is in flight until the application has
    returned; WebSockets are not counted. `priority` maps names of domains, or is a callable from the scope, to
    priorities: `"people"`, the default, `"verified"`, `"automated"` or `"prefetch"`; None exempts a request. `agents`
    verifies agents, for `identify` = `"web-bot-auth"` and for routes with an `agent`.
    """

    def __init__(
        self,
        app: App,
        *,
        gatekeeper: Gatekeeper | None = None,
        identify: IdentifyBy[Scope] = "client-address",
        domain: DomainBy[Scope] | None = None,
        rejections: Rejections | None = None,
        concurrency: ConcurrencyLimit | ConcurrencySettings | None = None,
        priority: PriorityBy[Scope] | None = None,
        agents: "AgentVerifier | None" = None,
    ) -> None:
        self.app = app
        self._admission = Admission(
            RequestAdapter(peer=_peer, field=_field, info=_info),
            gatekeeper=gatekeeper,
            identify=identify,
            domain=domain,
            rejections=rejections,
            concurrency=concurrency,
            priority=priority,
            agents=agents,
        )
        self.concurrency = None if self._admission.limit is None else AsgiConcurrency(app, self._admission)
        """The requests in flight, with the `state` of their limit; None without a limit."""
        # Without rules, requests need no other step.
        self._serve_http = None if gatekeeper is not None or self.concurrency is None else self.concurrency.serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the server: a request, a WebSocket, or the lifespan, which passes unchanged."""
        if self._serve_http is not None and scope["type"] == "http":
            await self._serve_http(scope, receive, send, None)
            return
        kind, gatekeeper, limited, ahead = scope["type"], self._admission.gatekeeper, None, None
        if kind not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if gatekeeper is not None and (limited := self._admission.classify(scope)) is not None:
            accounting = self._admission.admit(limited, now=time.time())
            if accounting.status is _REJECTED:
                await self._reject(accounting, scope, receive, send)
                return
            if accounting.status is _DELAYED:
                ahead = ReadAhead(receive)
                if not await _delay(accounting, gatekeeper, ahead):
                    return
                receive = ahead.receive
        try:
            if self.concurrency is None or kind != "http":
                await self.app(scope, receive, send)
            else:
                await self.concurrency.serve(scope, receive, send, limited)
        finally:
            if ahead is not None:
                ahead.close()

    async def _reject(self, accounting: Accounting, scope: Scope, receive: Receive, send: Send) -> None:
        accept = field_value(scope["headers"], b"accept")
        response = self._admission.rejections(accounting, now=accounting.received, accept=accept)
        if scope["type"] == "http":
            await send_response(response, send)
        else:
            await _reject_websocket(response, scope, receive, send)


async def _delay(accounting: Accounting, gatekeeper: Gatekeeper, ahead: ReadAhead) -> bool:
    """Wait for the release; return False, and free the slot, if the client disconnects or the server cancels."""
    released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    delay = Delay(accounting, gatekeeper, partial(released.set_result, None))
    passes = False
    try:
        passes = await ahead.wait(released)
    finally:
        if not released.done():
            delay.cancel()
        if not passes:
            ahead.close()
    return passes


async def _reject_websocket(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Reject before accepting: with the response where the server can send one, else by closing, which is a 403."""
    await receive()
    if "websocket.http.response" in (scope.get("extensions") or {}):
        fields = list(response.fields)
        await send({"type": "websocket.http.response.start", "status": response.status, "headers": fields})
        await send({"type": "websocket.http.response.body", "body": response.body})
    else:
        await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": "too many requests"})


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] or "" if client else ""


def _field(name: bytes) -> Callable[[Scope], bytes | None]:
    def read(scope: Scope) -> bytes | None:
        # A plain loop: this is most of the cost of the middleware when a header identifies.
        found: bytes | None = None
        for field_name, value in scope["headers"]:
            if field_name == name:
                if found is not None:
                    return None
                found = value
        return found

    return read


def _info(scope: Scope) -> RequestInfo:
    fields = scope["headers"]
    # A path that the server has decoded must not be decoded a second time.
    path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape").replace(b"%", b"%25")
    return RequestInfo(
        method=scope.get("method", "GET").encode(),
        path=path,
        host=field_value(fields, b"host") or b"",
        fields=fields,
        peer=_peer(scope),
        query=scope.get("query_string", b""),
    )
