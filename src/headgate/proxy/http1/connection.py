"""An HTTP/1.1 connection of a client: heads read one after another, each decided on, until one becomes a tunnel.

A connection is in one of five moods: it waits for a head, or for the rest of one; a decision is under way; an answer is
not yet sent; or everything is thrown away, since the last answer has been. While a decision is under way the connection
is still listened to, since a client that goes has no more need of it; what it sends ahead is kept, within bounds.
"""

import asyncio
import math
import socket
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from headgate.proxy.connect import Asked, Opened, Refused
from headgate.proxy.http1.head import Head, Malformed, end_of_head, parse_head
from headgate.proxy.net.poller import READ, WRITE
from headgate.proxy.net.tls import is_certified, record_overhead, say_end
from headgate.proxy.tunnel_end import WOULD_BLOCK, reset

if TYPE_CHECKING:
    from headgate.proxy.server import TunnelServer

__all__ = ["Http1Connection", "answer"]

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MOST_AHEAD = 1 << 16
"""Bytes sent ahead of a decision that are kept; more stay with the client."""
_PIECE = 1 << 16
_MOST_PER_TURN = 16
"""Requests answered here in a row before others get their turn: thousands of them fit into what is read at once."""


class Http1Connection:
    """See the module. `surplus` is a connection too many, which is only told so."""

    __slots__ = (
        "_buffer", "_closing", "_eof", "_gone", "_head", "_head_begun", "_out", "_peer", "_scanned", "_server",
        "_socket", "_surplus", "_task", "_wanted", "deadline",
    )  # fmt: skip

    def __init__(
        self, server: "TunnelServer", sock: socket.socket, peer: tuple[str, int], *, surplus: bool = False
    ) -> None:
        self._server = server
        self._socket = sock
        self._peer = peer
        self._surplus = surplus
        self._buffer = bytearray()
        self._scanned = 0
        self._head: Head | None = None
        self._task: asyncio.Task[None] | None = None
        self._out: bytes | memoryview = b""
        self._eof = self._closing = self._gone = self._head_begun = False
        self._wanted = READ
        self.deadline = server.relay.now + server.patience.quiet
        """When, on the coarse clock, `expire` is due."""

    # What the poll and the server call.

    def ready(self, events: int) -> None:
        """See `Ready`."""
        if events & WRITE:
            self._send(self._out)
            self._go_on()
        if events & READ and not self._gone:
            self._read()

    def expire(self) -> None:
        """Close: the client does not go on."""
        self.close()

    def close(self, *, visibly: bool = False) -> None:
        """End at once, with what is under way."""
        if self._gone:
            return
        self._server.poll.drop(self._socket.fileno())
        (reset if visibly else socket.socket.close)(self._socket)
        self._leave()
        if self._task is not None:
            self._task.cancel()

    @property
    def busy(self) -> int:
        """How many tunnels it is about to become."""
        return int(self._task is not None)

    @property
    def passed(self) -> tuple[int, int]:
        """No bytes: once it is a tunnel, it is a connection no more."""
        return 0, 0

    def drain(self) -> None:
        """Begin the end: do nothing, since the decision knows what to answer the next CONNECT."""

    # Reading.

    def _read(self) -> None:
        server = self._server
        piece = server.relay.buffer
        try:
            count = self._socket.recv_into(piece, _PIECE)
        except ssl.SSLWantWriteError:
            self.close()  # it changes keys and reads no answer to that
            return
        except WOULD_BLOCK:
            return
        except OSError:
            self.close()
            return
        if not count:
            self._hear_end()
        elif not self._closing:
            # Once for each request: empty lines before it, however often, give no more time.
            if not self._head_begun and self._task is None:
                self._head_begun = True
                self.deadline = server.relay.now + server.patience.head
            self._buffer += piece[:count]
            self._go_on()
            if self._out and len(self._buffer) >= _MOST_AHEAD:
                self._want(WRITE)

    def _hear_end(self) -> None:
        """Close, unless an answer is on its way, or there is something behind the head: the client may wait for it."""
        if not self._out and (self._closing or not self._buffer or self._task is None):
            self.close()
        else:
            self._eof = True
            self._want(self._wanted & ~READ)

    def _go_on(self) -> None:
        """See to one head after another, for as long as there is a whole one and nothing has to be waited for."""
        for _ in range(_MOST_PER_TURN):
            if self._task is not None or self._out or self._closing or self._gone or not self._see_to_next():
                break
        else:
            self._server.loop.call_soon(self._go_on)
        if not (self._out or self._closing or self._gone):
            self._want(0 if self._eof or len(self._buffer) >= _MOST_AHEAD else READ)

    def _see_to_next(self) -> bool:
        """Look at what has come for a head, and see to it; returns whether it was whole."""
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):
            del buffer[:2]  # 9112 2.2: an empty line before a request is ignored
        try:
            end = end_of_head(buffer, self._scanned)
            if not end:
                self._scanned = len(buffer)
                if self._eof:
                    self.close()
                return False
            self._scanned, self._head_begun = 0, False
            raw = bytes(buffer[:end])
            del buffer[:end]
            head = parse_head(raw)
        except Malformed:
            self._refuse("malformed")
        else:
            self._see_to(head, len(raw))
        return True

    def _see_to(self, head: Head, head_bytes: int) -> None:
        server = self._server
        if head.method != "CONNECT":
            page = None if head.has_body or self._surplus else server.page(head.method, head.target)
            if page is None:
                # What follows a body of whatever framing is not looked for.
                self._refuse("method", last=head.has_body or not head.keep_alive)
            else:
                last = not head.keep_alive
                self._answer(page.message(last=last, whole=head.method != "HEAD"), last=last)
            return
        if self._surplus:
            self._refuse("connections")
            return
        self._head = head
        self.deadline = math.inf  # the decision has limits of its own
        asked = Asked(
            authority=head.target,
            fields=head.fields,
            peer=self._peer,
            head_bytes=head_bytes + record_overhead(self._socket),
            certified=is_certified(self._socket),
            draining=server.draining,
        )
        self._task = server.loop.create_task(self._ask(asked))

    # What becomes of it.

    async def _ask(self, asked: Asked) -> None:
        """Have it decided on, and see to the verdict here and now: a callback would be one turn of the loop more."""
        try:
            verdict = await self._server.decide(asked)
        except BaseException as error:
            self._task = None
            self.close(visibly=True)
            if not isinstance(error, Exception):
                raise
            self._server.loop.call_exception_handler({"message": "a decision failed", "exception": error})
        else:
            self._task = None
            self._decided(verdict)

    def _decided(self, verdict: Opened | Refused) -> None:
        if isinstance(verdict, Opened):
            self._open(verdict)
        elif not self._gone and self._head is not None:
            last = not self._head.keep_alive
            self._answer(answer(verdict, last=last), last=last)
            self._go_on()

    def _open(self, opened: Opened) -> None:
        """Become a tunnel, if the client is still there to hear of it."""
        server = self._server
        try:
            greeted = not self._gone and self._socket.send(_ESTABLISHED) == len(_ESTABLISHED)
        except OSError:
            greeted = False
        if not greeted:
            reset(opened.socket)
            opened.closed(0, 0, "client_gone")
            self.close()
            return
        sock, early = self._socket, bytes(self._buffer)
        self._want(READ)
        self._leave()
        server.relay.join(sock, opened, early)

    def _refuse(self, reason: Literal["malformed", "method", "connections"], *, last: bool = True) -> None:
        """Refuse what nobody decides on, and, after the `last`, listen no more."""
        self._answer(answer(self._server.complain(reason, self._peer), last=last), last=last)

    def _answer(self, message: bytes | memoryview, *, last: bool) -> None:
        server = self._server
        self._closing = last
        self.deadline = server.relay.now + server.patience.quiet
        self._send(message)

    def _send(self, out: bytes | memoryview) -> None:
        """Send; once all of the last answer is sent, end."""
        try:
            sent = self._socket.send(out) if out else 0
        except WOULD_BLOCK:
            sent = 0
        except OSError:
            self.close()
            return
        self._out = out[sent:]
        if self._out:
            self._want(WRITE if self._eof or len(self._buffer) >= _MOST_AHEAD else READ | WRITE)
        elif self._closing:
            self._linger()

    def _linger(self) -> None:
        """Say that this is all, but read on for a while: unread bytes would make a reset of it (9112 9.6)."""
        self._buffer.clear()
        if self._eof:
            self.close()
            return
        self.deadline = self._server.relay.now + self._server.patience.linger
        say_end(self._socket)
        self._want(READ)

    def _want(self, wanted: int) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self._server.poll.change(self._socket.fileno(), wanted)

    def _leave(self) -> None:
        self._gone = True
        self._server.leave(self)


def answer(refused: Refused, *, last: bool) -> bytes:
    """Write a refusal as the bytes of an HTTP/1.1 message; after the `last` one the connection ends."""
    lines = [f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in refused.fields]
    if last:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "Content-Length: 0", "\r\n"]).encode("latin-1")
