"""What the parts of a gateway ask of each other, so that none of them needs to know the class of another.

client connection  ⇄  exchange  ⇄  upstream connection
   (Downstream)                      (ResponseHandler)
"""

import asyncio
from typing import Protocol

from headgate.errors import ProtocolError
from headgate.http.h1 import BodyReader, RequestHead, ResponseHead


class Downstream(Protocol):
    """The client's connection, as an exchange or a file response uses it."""

    def renew_deadline(self) -> None:
        """Set the deadline anew: something moved."""

    def write(self, data: bytes) -> None:
        """Send bytes of a response."""

    def complete(self, *, keep: bool, unread: bool = False) -> None:
        """Go on after a whole response.

        The connection ends unless `keep`; `unread` means that the request's body has not been read to its end.
        """

    def respond_with(self, message: bytes) -> None:
        """Send a whole response and go on; the connection is kept, and the request had no body."""

    def fail(self, request: RequestHead, error: ProtocolError, *, unread: bool) -> None:
        """Answer for the origin, of whose response nothing has been sent."""

    def refuse_body(self, error: ProtocolError, *, begun: bool) -> None:
        """Answer a request whose body is malformed; just close where the response has `begun`."""

    def abort(self, *, reset: bool = False) -> None:
        """Close at once; with a `reset` for clients to whom the connection's end would be the body's end."""

    def pause_request(self) -> None:
        """Read no more of the request's body: the origin is slow."""

    def resume_request(self) -> None:
        """Read the request's body again."""

    def become_tunnel(self, upstream: "Upstream", greeting: bytes) -> None:
        """Join both connections to a tunnel; `greeting` is the first that the client receives."""


class Upstream(Protocol):
    """The connection to the origin, as a tunnel takes it over."""

    def release_transport(self) -> asyncio.Transport:
        """Give the connection away; returns its transport."""


class ResponseHandler(Protocol):
    """An exchange, as the connection to the origin reports to it."""

    relays_whole: bool
    """Whether a usual response that arrives in one piece may be passed on as it is."""

    def relay_whole(self, message: bytes) -> None:
        """Pass on a whole response; the connection has been given back to the pool."""

    def interim_head(self, head: ResponseHead) -> list[bytes]:
        """Return what to send of a 1xx response."""

    def final_head(self, head: ResponseHead) -> tuple[bytes, BodyReader]:
        """Begin the final response: returns what to send as its head, and what reads its body."""

    def relay(self, pieces: list[bytes]) -> None:
        """Send pieces of the response."""

    def end(self, *, reusable: bool) -> None:
        """All of the response has been sent; `reusable` is whether the origin keeps the connection."""

    def lost(self, *, unanswered: bool) -> None:
        """The origin closed before a final response began; `unanswered`: without having sent a byte."""

    def fail(self, status: int, reason: str) -> None:
        """The response cannot be passed on, and nothing of it has been."""

    def truncated(self) -> None:
        """The response broke off."""

    def switch(self, head: ResponseHead, rest: bytes) -> None:
        """The origin switches protocols, and has sent `rest` already; raises `ProtocolError` if it was not asked to."""

    def pause_request(self) -> None:
        """The origin reads slowly."""

    def resume_request(self) -> None:
        """The origin reads again."""
