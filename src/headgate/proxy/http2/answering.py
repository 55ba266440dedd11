"""What becomes of a request: a CONNECT is decided on, and is a tunnel or refused; anything else may get a page."""

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from h2.errors import ErrorCodes

from headgate.proxy.connect import Asked, Opened, Refused
from headgate.proxy.http1.head import Malformed
from headgate.proxy.http2.control import MOST_STREAMS
from headgate.proxy.http2.page_stream import Publication
from headgate.proxy.http2.request import Request, read_request
from headgate.proxy.http2.stream import Stream
from headgate.proxy.net.tls import is_certified, record_overhead
from headgate.proxy.tunnel_end import reset

if TYPE_CHECKING:
    from headgate.proxy.http2.connection import Http2Connection

__all__ = ["Answering"]


class Answering:
    """Answers the requests of one connection. With `surplus` it is one too many, and is only told so."""

    __slots__ = ("_certified", "_connection", "_overhead", "_peer", "_surplus")

    def __init__(
        self, connection: "Http2Connection", sock: socket.socket, peer: tuple[str, int], *, surplus: bool
    ) -> None:
        self._connection = connection
        self._peer = peer
        self._certified = is_certified(sock)
        self._overhead = record_overhead(sock)
        self._surplus = surplus

    def begin(self, number: int, lines: Sequence[tuple[bytes, bytes]], *, head_bytes: int, is_ended: bool) -> None:
        """Begin a stream; `is_ended` says that the client has no more to say in it. Raises `Violation`."""
        connection = self._connection
        if len(connection.streams) >= MOST_STREAMS:
            connection.control.reset(number, ErrorCodes.REFUSED_STREAM)  # 5.1.2; and it may be asked for again
            connection.reception.count("mistakes")
            return
        try:
            request = read_request(lines)
        except Malformed:
            self._complain("malformed", number, is_ended=is_ended)
            return
        if request.method != "CONNECT":
            self._show(number, request, is_ended=is_ended)
        elif self._surplus:
            self._complain("connections", number, is_ended=is_ended)
            connection.leave(ErrorCodes.NO_ERROR, "there are too many connections")
        else:
            self._ask(number, request, head_bytes=head_bytes, is_ended=is_ended)

    def _ask(self, number: int, request: Request, *, head_bytes: int, is_ended: bool) -> None:
        """Have a CONNECT decided on."""
        connection = self._connection
        asked = Asked(
            authority=request.authority,
            fields=request.fields,
            peer=self._peer,
            protocol="h2",
            head_bytes=head_bytes + self._overhead,
            certified=self._certified,
            draining=connection.server.draining,
        )
        stream = Stream(connection, number, connection.control.first_window)
        stream.client_ended = is_ended
        connection.add(stream)
        stream.task = asyncio.ensure_future(connection.server.decide(asked))
        stream.task.add_done_callback(partial(self._decided, stream))

    def _decided(self, stream: Stream, task: "asyncio.Future[Opened | Refused]") -> None:
        stream.task = None
        verdict: Opened | Refused | None = None
        if not task.cancelled():
            try:
                verdict = task.result()
            except Exception as error:
                told = {"message": "a decision failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(told)
        if isinstance(verdict, Opened):
            self._open(stream, verdict)
        elif stream.over:
            return
        elif verdict is None:
            stream.end("client_gone", ErrorCodes.INTERNAL_ERROR)
        else:
            self._refuse(verdict, stream.number, is_ended=stream.client_ended)
            stream.end("client_gone")
        self._connection.settle()

    def _open(self, stream: Stream, opened: Opened) -> None:
        """Make a tunnel of a stream, if the client is still there to hear of it."""
        if stream.over:
            reset(opened.socket)
            opened.closed(0, 0, "client_gone")
            return
        connection = self._connection
        connection.control.answer(stream.number, 200, (), is_all=False)
        stream.open(opened, connection.server.relay.now)
        connection.deadline = min(connection.deadline, stream.deadline)

    def _show(self, number: int, request: Request, *, is_ended: bool) -> None:
        """Answer a request that is no CONNECT: by a page, or not. Raises `Violation`."""
        connection = self._connection
        page = connection.server.page(request.method, request.path) if is_ended else None
        if page is None:
            self._complain("method", number, is_ended=is_ended)
            return
        is_whole = request.method == "GET" and bool(page.body)
        connection.control.answer(number, 200, page.fields, is_all=not is_whole)
        if is_whole:
            shown = Publication(connection, number, connection.control.first_window, body=page.body)
            connection.add(shown)
            shown.resume()

    def _complain(self, reason: Literal["malformed", "method", "connections"], number: int, *, is_ended: bool) -> None:
        """Refuse what nobody decides on. Raises `Violation`."""
        self._refuse(self._connection.server.complain(reason, self._peer), number, is_ended=is_ended)
        self._connection.reception.count("mistakes")

    def _refuse(self, refused: Refused, number: int, *, is_ended: bool) -> None:
        """Answer, and ask for no more of what the answer does not depend on (8.1)."""
        control = self._connection.control
        control.answer(number, refused.status, refused.fields)
        if not is_ended:
            control.reset(number, ErrorCodes.NO_ERROR)
