"""The concurrency limit in front of an ASGI application, on asyncio.

A request is in flight until the application has returned. The limit is used from one event loop only, so no lock is
needed.
"""

import logging
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from headgate.limit.concurrency import ConcurrencyState, Priority
from headgate.origin.admission import Admission, Limited
from headgate.origin.permits import ConcurrencyWatch, Permit, Permits, QueuedRequest
from headgate.origin.read_ahead import Message, ReadAhead, Receive, Scope, Send
from headgate.origin.request_info import field_value
from headgate.origin.response import Response

App = Callable[[Scope, Receive, Send], Awaitable[None]]
_logger: Final = logging.getLogger("headgate.origin")


class AsgiConcurrency:
    """Passes requests to `app` as its limit allows: at once, from the queue, or not at all."""

    def __init__(self, app: App, admission: Admission[Scope]) -> None:
        assert admission.limit is not None
        self._app = app
        self._admission = admission
        self._permits = Permits(admission.limit, call_later=_call_later)
        self._learns = admission.limit.settings.max == "learned"
        self._watch = ConcurrencyWatch(_logger.warning)

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        return self._permits.limit.state

    async def serve(self, scope: Scope, receive: Receive, send: Send, limited: Limited | None) -> None:
        """Serve a request, whose domain and identifier may be known."""
        priority = self._admission.priority_of(scope, limited)
        if priority is None:
            await self._app(scope, receive, send)
            return
        permit, ahead = self._permits.take(), None
        if permit is None:
            flow = limited[1] if limited is not None else self._admission.identifier_of(scope) or b""
            ahead = ReadAhead(receive)
            permit = await self._wait(priority, flow, ahead, scope, send)
            if permit is None:
                return
            receive = ahead.receive
        if permit.started >= self._watch.due:
            self._watch.look(self.state, now=permit.started)
        if self._learns:
            receive, send = partial(_receive, permit, receive), partial(_send, permit, send)
        answered = False
        try:
            await self._app(scope, receive, send)
        except Exception:
            answered = True  # by the server, with 500
            raise
        finally:
            permit.release(measured=answered)  # if the application returns without a response, its client has left
            if ahead is not None:
                ahead.close()

    async def _wait(self, priority: Priority, flow: bytes, ahead: ReadAhead, scope: Scope, send: Send) -> Permit | None:
        """Wait for a permit; answer a request that gets none, unless its client has left."""
        decided = get_running_loop().create_future()
        request = QueuedRequest(priority, flow, self._permits.clock(), partial(decided.set_result, None))
        permit = None
        try:
            self._permits.queue(request)
            if request.is_decided or await ahead.wait(decided):
                permit = request.permit
                if permit is None:
                    accept = field_value(scope["headers"], b"accept")
                    await send_response(self._admission.refusals(request.retry_after, accept=accept), send)
        finally:
            if permit is None:
                ahead.close()
                self._permits.leave(request)
        return permit


async def _receive(permit: Permit, receive: Receive) -> Message:
    message = await receive()
    permit.body_received()
    return message


def _send(permit: Permit, send: Send, message: Message) -> Awaitable[None]:
    if message["type"] == "http.response.start":
        permit.responded()
    return send(message)


def _call_later(seconds: float, callback: Callable[[], None]) -> None:
    get_running_loop().call_later(seconds, callback)


async def send_response(response: Response, send: Send) -> None:
    """Send a response of the middleware."""
    # A copy: the response is kept for other requests, and servers and other middleware may add fields.
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.fields)})
    await send({"type": "http.response.body", "body": response.body})
