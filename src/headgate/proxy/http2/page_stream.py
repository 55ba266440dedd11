"""A stream that is no tunnel: its answer is a page, sent as the client's windows allow, from the one copy there is."""

from typing import TYPE_CHECKING

from headgate.proxy.http2.frames import DATA, LONGEST_PAYLOAD, header
from headgate.proxy.http2.stream import Stream

if TYPE_CHECKING:
    from headgate.proxy.http2.connection import Http2Connection

__all__ = ["Publication"]


class Publication(Stream):
    """Sends `body` to a client that has asked for it, and has no more to say."""

    __slots__ = ("_rest",)

    is_tunnel = False

    def __init__(self, connection: "Http2Connection", number: int, window: int, *, body: bytes) -> None:
        super().__init__(connection, number, window)
        self.client_ended = True
        self._rest = memoryview(body)
        self._stay()

    def resume(self) -> None:
        """Send what there is room for; after the last of it the stream is over."""
        connection = self._connection
        while self._rest and (room := min(connection.room(self), LONGEST_PAYLOAD)) > 0:
            piece, self._rest = self._rest[:room], self._rest[room:]
            frame = header(len(piece), DATA, 0, self.number) + piece
            connection.send(self, memoryview(frame), len(piece))
            self._stay()
        if not self._rest and not self.over:
            connection.control.say_end(self.number)
            self.end("ended")

    go_on = resume

    def _stay(self) -> None:
        server = self._connection.server
        self.deadline = server.relay.now + server.patience.quiet
