"""One stream of a client's connection: a CONNECT that is decided on, and then a tunnel to its target.

What the client sends is passed on at the end of the turn in which it came, in one go, and only what the system does not
take is copied and waits; until it is gone the client's window stays as it is. The target is read while the client's
windows are open and nothing waits to be sent to it. The end of what one says is passed on behind its last byte, and the
other direction goes on; what breaks on one side breaks visibly on the other: a reset for a reset (RFC 9113, 8.5).
"""

import asyncio
import contextlib
import math
import socket
from typing import TYPE_CHECKING, Final

from h2.errors import ErrorCodes

from headgate.proxy.connect import Ending, Limits, Opened, Refused
from headgate.proxy.http2.flow_control import MOST_OF_A_STREAM, Receiving
from headgate.proxy.http2.frames import window_update
from headgate.proxy.http2.shared import INBOX
from headgate.proxy.net.poller import READ, WRITE
from headgate.proxy.tunnel_end import MOST_WAITING, RECORD, reset

if TYPE_CHECKING:
    from headgate.proxy.http2.connection import Http2Connection

__all__ = ["Stream"]

_MOST_PIECES: Final = 64
"""Pieces written in one go; more are put together first."""
_CODES: Final = {
    "target_gone": ErrorCodes.CONNECT_ERROR,
    "idle": ErrorCodes.CANCEL,
    "max_seconds": ErrorCodes.CANCEL,
    "max_bytes": ErrorCodes.CANCEL,
    "byte_ratio": ErrorCodes.CANCEL,
    "drained": ErrorCodes.CANCEL,
}
"""What the client is told where it was not the client that ended it."""


class Stream:
    """See the module. `window` is what the client lets it send at first."""

    __slots__ = (
        "_appetite", "_bounded", "_closed", "_connection", "_descriptor", "_latest", "_limits", "_pieces", "_socket",
        "_target_ended", "_waiting", "_wanted", "_watched", "client_ended", "deadline", "inlet", "number", "over",
        "received", "sent", "task", "window",
    )  # fmt: skip

    is_tunnel = True
    """Whether it is one, or may become one."""

    def __init__(self, connection: "Http2Connection", number: int, window: int) -> None:
        self._connection = connection
        self.number = number
        self.window = window
        """Bytes that may be sent to the client now; less than none where it took back what it had allowed (6.9.2)."""
        self.inlet = Receiving(MOST_OF_A_STREAM)
        """What the client may send."""
        self.task: asyncio.Future[Opened | Refused] | None = None
        """The decision, while it is under way."""
        self.client_ended = False
        """Whether the client has said all."""
        self.over = False
        """Whether it is no tunnel any more, nor about to become one."""
        self.deadline = math.inf
        """When, on the coarse clock, `expire` is due: a decision has limits of its own."""
        self.received = self.sent = 0
        self._pieces: list[memoryview] = []  # what came in this turn
        self._waiting = bytearray()  # what came in earlier ones
        self._socket: socket.socket | None = None
        self._limits = Limits()
        self._target_ended = self._watched = self._bounded = False
        self._appetite = RECORD
        self._wanted = 0
        self._latest = math.inf

    @property
    def passed_on(self) -> int:
        """Bytes the client has sent that do not wait to be written to the target."""
        return self.sent - len(self._waiting)

    def open(self, opened: Opened, now: float) -> None:
        """Become a tunnel."""
        limits = opened.limits
        self._socket, self._closed, self._limits = opened.socket, opened.closed, limits
        self._descriptor = opened.socket.fileno()
        self._bounded = limits.are_of_bytes
        self._latest = now + limits.max_seconds
        self.deadline = min(now + limits.idle, self._latest)
        self._want(READ | WRITE if self._waiting else READ)
        if self.client_ended:
            self._tell_target()

    # What the poll and the connection call.

    def ready(self, events: int) -> None:
        """Go on with the target's socket; see `Ready`."""
        if events & WRITE and not self.over:
            self._flush()
        if events & READ and not self.over:
            if self._wanted & READ:
                self._pull()
            elif self._watched:
                self._hear_unasked()
        self._connection.settle()

    def take(self, piece: memoryview) -> None:
        """Take a piece of DATA, which `deliver` is to pass on before the buffer is used anew."""
        self._pieces.append(piece)

    def deliver(self) -> None:
        """Pass on what came in this turn, its end as well."""
        if self.over:
            return  # it ended in this turn; 9113 5.1: no frame may be sent on it any more
        pieces, self._pieces = self._pieces, []
        if pieces and not (self._may_pass(sent=sum(map(len, pieces))) and self._pass_on(pieces)):
            return
        if self.client_ended:
            self._tell_target()
        else:
            self._credit()

    def resume(self) -> None:
        """Read the target again, when it has something: there may be room for it."""
        if self._socket is not None and not self._target_ended:
            self._want(self._wanted | READ)

    def go_on(self) -> None:
        """Read the target at once: it is this one's turn."""
        self.resume()
        if self._wanted & READ:
            self._pull()

    def expire(self, now: float) -> None:
        """End: the time is over."""
        self.end("max_seconds" if now >= self._latest else "idle")

    def end(self, why: Ending, code: ErrorCodes | None = None) -> None:
        """Let go of everything, tell the client unless it knows, and say so, once.

        `code` is what the client is told instead of the code that belongs to `why`.
        """
        if self.over:
            return
        self.over = True
        connection = self._connection
        if self.task is not None:
            self.task.cancel()
        sent = self.passed_on
        self._hold(-len(self._waiting))
        self._waiting = bytearray()
        self._pieces = []
        connection.forget(self, code or _CODES.get(why))
        if self._socket is not None:
            connection.server.poll.forget(self._descriptor)
            (reset if why in {"client_gone", "target_gone"} else socket.socket.close)(self._socket)
            self._socket = None
            self._closed(self.received, sent, why)
        connection.server.left()

    # From the target to the client.

    def _pull(self) -> None:
        """Read what there is, once, and pass it on."""
        connection, sock = self._connection, self._socket
        most = min(connection.room(self), self._appetite)
        if most <= 0 or sock is None:
            self._want(self._wanted & ~READ)
            return
        if self._bounded:
            most = self._limits.room(self.received + self.sent, most)
        outbox = connection.shared.outbox
        slots = outbox.slots(most)
        try:
            count = sock.recv_into(slots[0]) if len(slots) == 1 else sock.recvmsg_into(slots)[0]
        except BlockingIOError:
            return
        except OSError:
            self.end("target_gone")
            return
        if not count:
            self._hear_end()
            return
        self._appetite = INBOX if count >= min(most, RECORD) else RECORD
        if self._may_pass(received=count):
            connection.send(self, outbox.framed(count, self.number), count)

    def _hear_end(self) -> None:
        """Pass the target's end on."""
        self._target_ended = True
        self._want(self._wanted & ~READ)
        self._connection.control.say_end(self.number)
        if self.client_ended and not self._waiting:
            self.end("ended")

    def _hear_unasked(self) -> None:
        """Hear of what cannot be declined: an error; or that both directions are over while there is more to read."""
        if self._socket is not None and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.end("target_gone")
        else:
            self._connection.server.poll.forget(self._descriptor)  # it would be told of again and again
            self._wanted = 0
            self._watched = False

    # From the client to the target.

    def _pass_on(self, pieces: list[memoryview]) -> bool:
        """Write pieces, or have them wait; returns whether the tunnel goes on."""
        sent = 0
        if self._socket is not None and not self._waiting:
            if len(pieces) > _MOST_PIECES:
                pieces = [memoryview(b"".join(pieces))]
            try:
                sent = self._socket.send(pieces[0]) if len(pieces) == 1 else self._socket.sendmsg(pieces)
            except BlockingIOError:
                pass
            except OSError:
                self.end("target_gone")
                return False
        before = len(self._waiting)
        for piece in pieces:
            if sent < len(piece):
                self._waiting += piece[sent:] if sent else piece
            sent = max(0, sent - len(piece))
        if len(self._waiting) > before:
            self._hold(len(self._waiting) - before)
            if self._socket is not None:
                self._want(self._wanted | WRITE)
        return True

    def _flush(self) -> None:
        """Write what waits; behind it comes the end, or more."""
        if self._socket is None or not self._waiting:
            self._want(self._wanted & ~WRITE)
            return
        try:
            sent = self._socket.send(self._waiting)
        except BlockingIOError:
            return
        except OSError:
            self.end("target_gone")
            return
        del self._waiting[:sent]
        self._hold(-sent)
        self._touch()
        if not self._waiting:
            self._want(self._wanted & ~WRITE)
        if self.client_ended:
            self._tell_target()
        else:
            self._credit()

    def _tell_target(self) -> None:
        """Tell the target that the client has said all, once it has."""
        if self._socket is None or self._waiting:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if self._target_ended:
            self.end("ended")

    def _credit(self) -> None:
        """Open the client's window anew, by what has gone on; wider, where it went on at once."""
        connection = self._connection
        flows = not self._waiting and connection.server.relay.waiting < MOST_WAITING // 4
        increment = self.inlet.increment(len(self._waiting), growth=MOST_OF_A_STREAM if flows else 0)
        if increment:
            connection.outlet.said += window_update(self.number, increment)

    def _hold(self, count: int) -> None:
        """Keep so many bytes more in memory."""
        self._connection.held += count
        self._connection.server.relay.waiting += count

    # Both ways.

    def _touch(self) -> None:
        """Set the deadline anew: bytes are passing."""
        if self._socket is not None:
            self.deadline = min(self._connection.server.relay.now + self._limits.idle, self._latest)

    def _may_pass(self, *, received: int = 0, sent: int = 0) -> bool:
        """Count bytes and set the deadline anew, unless these are too many; then it is over."""
        if self._bounded:
            why = self._limits.broken(self.received + received, self.sent + sent, sending=sent > 0)
            if why is not None:
                self.end(why)
                return False
        self.received += received
        self.sent += sent
        self._touch()
        return True

    def _want(self, wanted: int) -> None:
        if wanted == self._wanted:
            return
        poll = self._connection.server.poll
        if self._watched:
            poll.change(self._descriptor, wanted)
        else:
            poll.watch(self._descriptor, wanted, self)
            self._watched = True
        self._wanted = wanted
