"""What happens to a request between its head and its exchange: a decision, a delay, and the wait for a permit.

The rules of its domain come first; the concurrency limit decides on what they accept, and on what they have delayed.
"""

import asyncio
from typing import Protocol

from headgate.http.h1 import RequestHead
from headgate.limit import Accounting
from headgate.origin.delay import Delay
from headgate.origin.gateway.context import GatewayContext
from headgate.origin.gateway.policy import ClientView, decide, flow_of, refusal
from headgate.origin.gateway.states import ClientEvent
from headgate.origin.permits import Permit, Permits, QueuedRequest
from headgate.origin.response import Response
from headgate.release import Status


class Requester(Protocol):
    """The client's connection, as the admission of its requests uses it."""

    def forward(self, request: RequestHead, permit: Permit | None) -> None:
        """Forward a request."""

    def answer(self, response: Response, request: RequestHead) -> None:
        """Answer a request without the origin."""

    def hold(self, event: ClientEvent) -> None:
        """Wait: the request is delayed or queued."""

    def resume(self) -> None:
        """End the wait: one of the other calls follows."""

    def read_on(self) -> None:
        """Handle the requests that were sent ahead, if the request that has waited is answered."""


class RequestAdmission:
    """Decides on the requests of one client's connection, one after another."""

    __slots__ = ("_client", "_context", "_permits", "_transport", "_waits", "view")

    def __init__(self, context: GatewayContext, client: Requester, transport: asyncio.Transport) -> None:
        self._context = context
        self._client = client
        self._transport = transport
        self.view = ClientView.of(context.policy, transport)
        """The connection under the policy of its last request."""
        self._waits: Delay | QueuedRequest | None = None
        self._permits: Permits | None = None  # those that a queued request waits for

    def decide(self, request: RequestHead) -> None:
        """Have a request forwarded or answered, now or later."""
        context = self._context
        if context.policy is not self.view.policy:
            self.view = ClientView.of(context.policy, self._transport)
        decision = decide(request, self.view, context.counters)
        if decision is None:
            self._admit(request, "")
        elif isinstance(decision, Response):
            self._client.answer(decision, request)
        elif decision.status is Status.ACCEPTED:
            self._admit(request, decision.domain)
        else:
            self._delay(request, decision)

    def cancel(self) -> None:
        """End the wait, if there is one: the client has left."""
        waits, self._waits = self._waits, None
        if isinstance(waits, Delay):
            waits.cancel()
        elif waits is not None and self._permits is not None:
            self._permits.leave(waits)

    def expire(self) -> bool:
        """Reject the request that waits for a permit, if there is one; returns whether there is."""
        if not isinstance(self._waits, QueuedRequest) or self._permits is None:
            return False
        self._permits.expire(self._waits)
        return True

    def _delay(self, request: RequestHead, accounting: Accounting) -> None:
        self._client.hold(ClientEvent.DELAYED)
        self._waits = Delay(accounting, self.view.policy.gatekeeper, lambda: self._release(request, accounting))

    def _release(self, request: RequestHead, accounting: Accounting) -> None:
        if self._waits is None:
            return
        self._waits = None
        self._client.resume()
        self._admit(request, accounting.domain)
        self._client.read_on()

    # The concurrency limit.

    def _admit(self, request: RequestHead, domain: str) -> None:
        """Forward a request if it gets a permit, otherwise queue it."""
        permits = self._context.permits
        permit = permits.take() if permits is not None else None
        if permits is None or permit is not None:
            self._client.forward(request, permit)
            return
        priority = self.view.policy.priorities.get(domain, "people")
        flow = flow_of(request, self.view)
        queued = QueuedRequest(priority, flow, permits.clock(), lambda: self._wake(request))
        permits.queue(queued)
        if queued.is_decided:
            self._carry_out(request, queued)
        else:
            self._waits, self._permits = queued, permits
            self._client.hold(ClientEvent.QUEUED)

    def _wake(self, request: RequestHead) -> None:
        """Go on with a request that has waited."""
        queued, self._waits = self._waits, None
        assert isinstance(queued, QueuedRequest)
        self._client.resume()
        self._carry_out(request, queued)
        self._client.read_on()

    def _carry_out(self, request: RequestHead, queued: QueuedRequest) -> None:
        """Forward or reject a request that was decided on."""
        if queued.permit is not None:
            self._client.forward(request, queued.permit)
        else:
            self._client.answer(refusal(request, self.view, queued.retry_after, self._context.counters), request)
