"""The body of a request, which is read before the origin is asked: a slow client holds no permit and no connection."""

from collections.abc import Callable

from headgate.errors import ProtocolError
from headgate.http.h1 import MAX_TRAILERS_SIZE, BodyReader, ChunkedBody, LengthBody, RequestHead
from headgate.origin.gateway.buffer import SpooledBuffer
from headgate.origin.gateway.record import GatewayCounters
from headgate.origin.gateway.responses import Downstream


class Upload:
    """Takes the place of an exchange in a client's connection until the body of `request` is complete.

    Then `received` is called with the content, whose length is that of `request` from then on. A chunked body has at
    most `max_size` bytes, 0 for no limit.
    """

    __slots__ = ("_body", "_client", "_counters", "_reader", "_received", "_request")

    begun = False
    waits_for_client = True

    def __init__(
        self,
        client: Downstream,
        request: RequestHead,
        body: SpooledBuffer,
        received: Callable[[SpooledBuffer], None],
        *,
        counters: GatewayCounters,
        max_size: int,
    ) -> None:
        self._client = client
        self._request = request
        self._body = body
        self._received = received
        self._counters = counters
        self._reader: BodyReader
        if request.chunked:
            self._reader = ChunkedBody(framed=False, max_trailers=MAX_TRAILERS_SIZE, max_size=max_size)
        else:
            self._reader = LengthBody(request.length)

    @property
    def takes_body(self) -> bool:
        """Whether the client's next bytes belong to this request."""
        return not self._reader.done

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the body; return those that come after its end."""
        reader, body, request = self._reader, self._body, self._request
        try:
            pieces = reader.feed(data)
        except ProtocolError as error:
            self._counters.malformed += 1
            self._refuse(error, "malformed")
            return b""
        if pieces and not body.append(b"".join(pieces)):
            self._refuse(ProtocolError(503, "there is no room for the request's body"), "buffers")
            return b""
        if reader.done:
            # The origin gets the body with its length, and without an expectation.
            request.length, request.chunked, request.expects_continue = len(body), False, False
            self._received(body)
        else:
            self._client.renew_deadline()
        return reader.rest

    def _refuse(self, error: ProtocolError, reason: str) -> None:
        self._body.close()
        self._client.fail(error, reason, unread=True)

    def time_out(self, **_: bool) -> None:
        """Answer 408: the body is not continued in time."""
        self._counters.malformed += 1
        self._refuse(ProtocolError(408, "request body timeout"), "malformed")

    def abandon(self) -> None:
        """End: the client has left."""
        self._body.close()

    def pause_response(self) -> None:
        """Do nothing: there is no response yet."""

    def resume_response(self) -> None:
        """Do nothing: there is no response yet."""

    def drain(self) -> None:
        """Do nothing: the exchange that follows closes the connection."""
