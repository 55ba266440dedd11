"""ASGI middleware: the gatekeeper in front of an application, for `http` and `websocket` scopes.

Pure ASGI on asyncio: bodies stream through unchanged. The gatekeeper is used from the event loop only, so no lock is
needed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from headgate.limit import Accounting, Gatekeeper
from headgate.origin.admission import (
    FORGET_INTERVAL,
    RequestAdapter,
    check_domain,
    check_rejections,
    forget,
    make_classifier,
)
from headgate.origin.identify import Identify
from headgate.origin.request_info import RequestInfo, field_value
from headgate.origin.response import Rejections, Response
from headgate.origin.routes import Routes
from headgate.release import Status

__all__ = ["GatekeeperMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ACCEPTED, _DELAYED = Status.ACCEPTED, Status.DELAYED
MAX_READ_EARLY = 65_536
"""Bytes of a body that are read ahead while its request is delayed."""
_TRY_AGAIN_LATER = 1013
"""The WebSocket close code "try again later"."""


class GatekeeperMiddleware:
    """Passes a request to `app` when the gatekeeper allows it.

    Accepted requests go on at once, delayed ones at their release, rejected ones are answered here with 503 and
    `Retry-After`. `identify` is `"client-address"`, `"header:NAME"`, an `Identify`, or a callable from the scope to
    bytes, text or None; `domain` is a name, `Routes`, or a callable from the scope to a name or None. A callable that
    returns None leaves the request unlimited. Without `domain`, requests belong to the only domain of the gatekeeper's
    embedded master, or to `"default"` if it has several or there is none. `rejections` writes the rejections; by
    default with the domains of that master. Raises `ConfigurationError` for a domain that it does not have.
    """

    def __init__(
        self,
        app: App,
        *,
        gatekeeper: Gatekeeper,
        identify: Identify | Callable[[Scope], bytes | str | None] | str = "client-address",
        domain: Routes | Callable[[Scope], str | None] | str | None = None,
        rejections: Rejections | None = None,
    ) -> None:
        self.app = app
        self._gatekeeper = gatekeeper
        adapter = RequestAdapter(peer=_peer, field=_field, info=_info)
        self._classify = make_classifier(identify, check_domain(domain, gatekeeper), adapter)
        self._rejections = check_rejections(rejections, gatekeeper)
        self._forget_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the server: a request, a WebSocket, or the lifespan, which passes unchanged."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        limited = self._classify(scope)
        if limited is None:
            await self.app(scope, receive, send)
            return
        domain, identifier = limited
        now = time.time()
        accounting = self._gatekeeper.admit(domain, identifier, now=now)
        if not now < self._forget_at <= now + FORGET_INTERVAL:  # also when the clock was set back
            self._forget_at = now + FORGET_INTERVAL
            forget(self._gatekeeper, now=now)
        if accounting.status is _ACCEPTED:
            await self.app(scope, receive, send)
        elif accounting.status is _DELAYED:
            await _Delayed(self._gatekeeper, accounting, receive).serve(self.app, scope, send)
        else:
            response = self._rejections(accounting, now=now, accept=field_value(scope["headers"], b"accept"))
            if scope["type"] == "http":
                await _reject(response, send)
            else:
                await _reject_websocket(response, scope, receive, send)


class _Delayed:
    """One delayed request: waits for its release, or until the client disconnects.

    To notice a disconnect it reads messages before the application does, and gives them to the application later, in
    order. A read that is under way at the release is kept, not cancelled: a cancelled read could lose a message.
    """

    def __init__(self, gatekeeper: Gatekeeper, accounting: Accounting, receive: Receive) -> None:
        self._gatekeeper = gatekeeper
        self._accounting = accounting
        self._receive = receive
        self._early: deque[Message] = deque()
        self._early_bytes = 0
        self._pending: asyncio.Task[Message] | None = None

    async def serve(self, app: App, scope: Scope, send: Send) -> None:
        """Wait, then call `app`; when the client disconnects or the server cancels, free the slot and return."""
        released = False
        try:
            released = await self._wait()
            if released:
                await app(scope, self._replay, send)
        finally:
            if not released:
                self._gatekeeper.cancel(self._accounting)
            if self._pending is not None:
                self._pending.cancel()

    async def _wait(self) -> bool:
        """Return True at the release, False as soon as the client has disconnected."""
        # Monotonic: a wall clock that is set back must not prolong the wait.
        deadline = time.monotonic() + self._accounting.wait
        while (remaining := deadline - time.monotonic()) > 0:
            if self._early_bytes > MAX_READ_EARLY:
                await asyncio.sleep(remaining)
                continue
            if self._pending is None:
                self._pending = asyncio.ensure_future(_message(self._receive))
            await asyncio.wait((self._pending,), timeout=remaining)
            if self._pending.done():
                message, self._pending = self._pending.result(), None
                if message["type"] in ("http.disconnect", "websocket.disconnect"):
                    return False
                self._early.append(message)
                self._early_bytes += len(message.get("body", b""))
        return True

    async def _replay(self) -> Message:
        """Return the messages read early, then the read under way, then further ones from the server."""
        if self._early:
            return self._early.popleft()
        if self._pending is not None:
            # Shielded: an application that cancels this read may read again.
            message = await asyncio.shield(self._pending)
            self._pending = None
            return message
        return await self._receive()


async def _message(receive: Receive) -> Message:
    return await receive()


async def _reject(response: Response, send: Send) -> None:
    # A copy: the response is kept for the next rejection, and servers and other middleware may add fields.
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.fields)})
    await send({"type": "http.response.body", "body": response.body})


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
    )
