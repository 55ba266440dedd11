"""What happens to a request between its head and its exchange: a decision, a delay, and the wait for a place.

The rules of its domain come first; the concurrency limit decides on what they accept, and on what they have delayed.
"""

import asyncio
from typing import Protocol

from headgate.http.h1 import RequestHead
from headgate.limit import Accounting
from headgate.origin.delay import Delay
from headgate.origin.gateway.context import GatewayContext
from headgate.origin.gateway.places import Place, QueuedRequest
from headgate.origin.gateway.policy import ClientView, decide, flow_of, refusal
from headgate.origin.gateway.states import ClientEvent
from headgate.origin.response import Response
from headgate.release import Status


class Requester(Protocol):
    """The client's connection, as the admission of its requests uses it."""

    def forward(self, request: RequestHead, place: Place | None) -> None:
        """Forward a request."""

    def answer(self, response: Response, request: RequestHead) -> None:
        """Answer a request without the origin."""

    def hold(self, event: ClientEvent) -> None:
        """Wait: the request is delayed or queued."""

    def resume(self) -> None:
        """End the wait: one of the other calls follows."""

    def read_on(self) -> None:
        """Handle the requests that were sent ahead, if the request that has waited is answered."""

    def abort(self) -> None:
        """Close at once."""


class RequestAdmission:
    """Decides on the requests of one client's connection, one after another."""

    __slots__ = ("_client", "_context", "_transport", "_waits", "view")

    def __init__(self, context: GatewayContext, client: Requester, transport: asyncio.Transport) -> None:
        self._context = context
        self._client = client
        self._transport = transport
        self.view = ClientView.of(context.policy, transport)
        """The connection under the policy of its last request."""
        self._waits: Delay | QueuedRequest | None = None

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
        if waits is not None:
            waits.cancel()

    def expire(self) -> bool:
        """Refuse the request that waits for a place, if there is one; returns whether there is."""
        waits = self._waits
        if not isinstance(waits, QueuedRequest):
            return False
        waits.cancel()
        self.refuse(waits.head, self._context.timeouts.response)
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
        """Forward a request if it gets a place, otherwise queue or refuse it."""
        places = self._context.places
        place = places.take(domain) if places is not None else None
        if places is None or place is not None:
            self._client.forward(request, place)
            return
        priority = self.view.policy.priorities.get(domain, "people")
        queued = QueuedRequest(places, self, request, (domain, priority, flow_of(request, self.view)))
        decision = places.queue(queued)
        if decision is None:
            self._client.hold(ClientEvent.QUEUED)
            self._waits = queued
        elif decision.starts:
            self._client.forward(request, places.started(queued))
        else:
            self._client.answer(refusal(request, self.view, decision.retry_after, self._context.counters), request)

    # What the places call: see `QueueingClient`.

    def start(self, request: RequestHead, place: Place) -> None:
        """Forward a request that has waited."""
        self._waits = None
        self._client.resume()
        self._client.forward(request, place)

    def refuse(self, request: RequestHead, retry_after: float) -> None:
        """Answer a request that has waited."""
        self._waits = None
        self._client.resume()
        self._client.answer(refusal(request, self.view, retry_after, self._context.counters), request)
        self._client.read_on()

    def abort(self) -> None:
        """Close the connection at once."""
        self._client.abort()
