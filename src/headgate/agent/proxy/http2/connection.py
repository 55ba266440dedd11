"""A client's connection that speaks HTTP/2: its socket, its streams, its end.

One turn: read what there is, up to a bound; see to every frame; pass on what came for each tunnel; open windows anew;
send what is to be said. A connection ends in one of three ways. It is *left* when it has nothing to do, or does what it
must not: GOAWAY says why, and what still comes is thrown away for a while, so that the GOAWAY is not lost. It is *lost*
when the client's socket is. Or the proxy ends, and it is closed with everything within.

The end of the proxy is told at its beginning, by a GOAWAY of the largest stream number there is (6.8): what the client
sends before it hears of that is decided on, refused that is, and tunnels go on. The true number comes last.
"""

import asyncio
import math
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from h2.errors import ErrorCodes

from headgate.agent.proxy.asked import Asked, Opened, Refused
from headgate.agent.proxy.head import Malformed
from headgate.agent.proxy.http2.control import MOST_STREAMS, Control
from headgate.agent.proxy.http2.frames import LARGEST_STREAM, LONGEST_PAYLOAD, Violation, goaway, ping
from headgate.agent.proxy.http2.outlet import Outlet
from headgate.agent.proxy.http2.reception import Reception
from headgate.agent.proxy.http2.request import read_request
from headgate.agent.proxy.http2.shared import INBOX, MOST_WAITING, RECORD, Shared
from headgate.agent.proxy.http2.stream import Stream
from headgate.agent.proxy.http2.window import FIRST_WINDOW
from headgate.agent.proxy.poll import READ, WRITE
from headgate.agent.proxy.side import WOULD_BLOCK, reset
from headgate.agent.proxy.tls import is_certified, say_end

if TYPE_CHECKING:
    from headgate.agent.proxy.server import TunnelServer

__all__ = ["Http2", "Http2Connection"]

_SMALL_READ: Final = 1 << 10
"""Bytes of a read that is so short that nothing more is looked for."""
_MOST_SAID: Final = 1 << 16
"""Bytes of answers to a client that reads none."""
_ROUND_TRIP: Final = 1.0
"""Seconds until what a client sent before it heard of an end has surely come."""
_PROBE: Final = b"headgate"


class Http2:
    """Makes the connections that speak HTTP/2, on one event loop; see `Upgrade`."""

    def __init__(self) -> None:
        self._shared = Shared()

    def __call__(
        self, server: "TunnelServer", sock: socket.socket, peer: tuple[str, int], *, surplus: bool
    ) -> "Http2Connection":
        """Make one."""
        return Http2Connection(self._shared, server, sock, peer=peer, surplus=surplus)


class Http2Connection:
    """See the module. `surplus` is a connection too many, which is only told so."""

    __slots__ = (
        "_amid_until", "_appetite", "_draining", "_echoed", "_gone", "_peer", "_quiet_until", "_reception",
        "_said_end", "_socket", "_stalled", "_surplus", "_wanted", "client_leaves", "closing", "control", "deadline",
        "held", "outlet", "server", "shared", "streams", "window",
    )  # fmt: skip

    def __init__(
        self, shared: Shared, server: "TunnelServer", sock: socket.socket, *, peer: tuple[str, int], surplus: bool
    ) -> None:
        self.shared = shared
        self.server = server
        self._socket = sock
        self._peer = peer
        self._surplus = surplus
        self.outlet = Outlet(sock, server.relay)
        self.control = Control(self.outlet.said)
        self._reception = Reception(self)
        self.streams: dict[int, Stream] = {}
        """Those that are decided on or tunnels, by their numbers."""
        self._stalled: set[Stream] = set()  # they have more to send than there is room for
        self.window = FIRST_WINDOW
        """Bytes that may be sent to the client now, in all streams together."""
        self.held = 0
        """Bytes from the client that wait, in all tunnels together."""
        self._appetite = RECORD
        self._wanted = READ
        self._echoed = False  # whether the client has heard that the end has begun
        self.client_leaves = False
        """Whether the client has said that it will begin no more streams."""
        self.closing = False
        """Whether it was left, and what comes is thrown away."""
        self._draining = self._said_end = self._gone = False
        self._amid_until = math.inf
        self._quiet_until = self.deadline = server.relay.now + server.patience.quiet
        """When, on the coarse clock, `expire` is due: not later than the earliest of all that is within."""
        self._want(READ | WRITE)  # the first turn tells the settings

    # What the poll and the server call.

    @property
    def busy(self) -> int:
        """How many tunnels there are within, those being decided on included."""
        return len(self.streams)

    def ready(self, events: int) -> None:
        """See `Ready`."""
        if self.closing:
            self._linger(events)
            return
        try:
            if events & WRITE:
                self._flush()
            if events & READ and not self.closing:
                self._read()
        except Violation as violation:
            self.leave(violation.code, violation.why)
        self.settle()

    def expire(self) -> None:
        """End what has had its time, and find out when the next has."""
        now = self.server.relay.now
        if self.closing:
            self._lose()
            return
        for stream in [one for one in self.streams.values() if one.deadline <= now]:
            stream.expire(now)
        if self._amid_until <= now:
            self.leave(ErrorCodes.ENHANCE_YOUR_CALM, "what was begun did not go on")
        elif not self.streams and self._quiet_until <= now:
            self.leave(ErrorCodes.NO_ERROR, "there was nothing to do")
        else:
            self.settle()
        if not self.closing:
            self._schedule()

    def drain(self) -> None:
        """Begin the end: say so, and refuse what still comes, as the decision knows."""
        if self.closing or self._draining:
            return
        self._draining = True
        self.outlet.said += goaway(LARGEST_STREAM, ErrorCodes.NO_ERROR, "the proxy ends") + ping(_PROBE)
        self._quiet_until = self.server.relay.now + _ROUND_TRIP
        self._schedule()
        self.settle()

    def close(self) -> None:
        """End at once, with everything within."""
        if self._gone:
            return
        if not self.closing:
            for stream in list(self.streams.values()):
                stream.end("drained")
            self.leave(ErrorCodes.NO_ERROR, "the proxy has ended")
        self._lose()

    # What streams and the reception call.

    def begin(self, number: int, lines: Sequence[tuple[bytes, bytes]], *, head_bytes: int, is_ended: bool) -> None:
        """Begin a stream: a CONNECT is decided on, anything else refused. Raises `Violation`.

        `is_ended` says that the client has no more to say in it.
        """
        if len(self.streams) >= MOST_STREAMS:
            self.control.reset(number, ErrorCodes.REFUSED_STREAM)  # 5.1.2; and it may be asked for again
            self._reception.count("mistakes")
            return
        try:
            request = read_request(lines)
        except Malformed:
            self._complain("malformed", number, is_ended=is_ended)
            return
        if request.method != "CONNECT":
            self._complain("method", number, is_ended=is_ended)
            return
        if self._surplus:
            self._complain("connections", number, is_ended=is_ended)
            self.leave(ErrorCodes.NO_ERROR, "there are too many connections")
            return
        asked = Asked(
            authority=request.authority,
            fields=request.fields,
            peer=self._peer,
            protocol="h2",
            head_bytes=head_bytes,
            certified=is_certified(self._socket),
            draining=self.server.draining,
        )
        stream = self.streams[number] = Stream(self, number, self.control.first_window)
        stream.client_ended = is_ended
        stream.task = asyncio.ensure_future(self.server.decide(asked))
        stream.task.add_done_callback(partial(self._decided, stream))

    def forget(self, stream: Stream, code: ErrorCodes | None) -> None:
        """Let go of a stream that is over, and reset it for the client, unless it knows."""
        del self.streams[stream.number]
        self._stalled.discard(stream)
        if code is not None and not self.closing:
            self.control.reset(stream.number, code)
        if not self.streams:
            self._quiet_until = self.server.relay.now + (_ROUND_TRIP if self._draining else self.server.patience.quiet)
            self._schedule()

    def room(self, stream: Stream) -> int:
        """Say how many bytes this stream may send now; where there are none, it is resumed when there may be."""
        if self.closing:
            return 0
        if not self._say() or self.window <= 0:
            self._stalled.add(stream)
            return 0
        return min(stream.window, self.window, INBOX if self.server.relay.waiting < MOST_WAITING else RECORD)

    def send(self, stream: Stream, frames: memoryview, count: int) -> None:
        """Send frames of DATA with `count` bytes of payload, for which there was room."""
        stream.window -= count
        self.window -= count
        self._reception.paid(-(-count // LONGEST_PAYLOAD))
        try:
            self.outlet.send(frames)
        except OSError:
            self._lose()
        else:
            self._want(READ | WRITE if self.outlet.waits else READ)

    def go_on(self) -> None:
        """Have those go on that had no room."""
        while self._stalled:
            self._stalled.pop().resume()

    def hear_echo(self, opaque: bytes) -> None:
        """Hear a ping's answer: whatever the client sent before it heard of the end has come."""
        if self._draining and opaque == _PROBE:
            self._echoed = True

    def settle(self) -> None:
        """End a turn: say what is to be said, and see whether anything is left to do."""
        if self.closing or self._gone:
            return
        self._reception.credit()
        if not self._say():
            if len(self.outlet.said) > _MOST_SAID:
                self.leave(ErrorCodes.ENHANCE_YOUR_CALM, "answers are not read")
            return
        if self._stalled and self.window > 0:
            self.go_on()
        if not self.streams and (self.client_leaves or self._echoed):
            self.leave(ErrorCodes.NO_ERROR, "there is nothing left to do")

    def leave(self, code: ErrorCodes, why: str) -> None:
        """End: tell the client so, and throw away for a while what it still sends."""
        if self.closing:
            return
        self.closing = True
        for stream in list(self.streams.values()):
            stream.end("client_gone")
        self.outlet.said += goaway(self.control.latest, code, why)
        self.deadline = self.server.relay.now + self.server.patience.linger
        self._linger(0)

    # Reading, deciding, sending.

    def _read(self) -> None:
        """Read, and see to what came."""
        inbox, count, ended = self.shared.inbox, 0, False
        try:
            while count < self._appetite:
                got = self._socket.recv_into(inbox[count : self._appetite + RECORD])
                count += got
                if got < _SMALL_READ:
                    ended = not got
                    break
        except WOULD_BLOCK:
            pass
        except OSError:
            self._lose()
            return
        if count:
            amount = self._reception.hear(inbox[:count])
            self._reception.deliver()
            # Many small frames take long to see to: who sends such gets shorter turns.
            self._appetite = min(INBOX, 2 * self._appetite) if amount * 2 > count else RECORD
            self._watch_for_more()
        if ended and not self.closing:
            self._lose()

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
        self.settle()

    def _open(self, stream: Stream, opened: Opened) -> None:
        """Make a tunnel of a stream, if the client is still there to hear of it."""
        if stream.over:
            reset(opened.socket)
            opened.closed(0, 0, "client_gone")
            return
        self.control.open(stream.number)
        stream.open(opened, self.server.relay.now)
        self.deadline = min(self.deadline, stream.deadline)

    def _complain(self, reason: Literal["malformed", "method", "connections"], number: int, *, is_ended: bool) -> None:
        """Refuse what nobody decides on. Raises `Violation`."""
        self._refuse(self.server.complain(reason, self._peer), number, is_ended=is_ended)
        self._reception.count("mistakes")

    def _refuse(self, refused: Refused, number: int, *, is_ended: bool) -> None:
        """Answer, and ask for no more of what the answer does not depend on (8.1)."""
        self.control.refuse(number, refused)
        if not is_ended:
            self.control.reset(number, ErrorCodes.NO_ERROR)

    def _watch_for_more(self) -> None:
        """Give the client some time for what it has begun, counted from its beginning."""
        if not self._reception.is_amid:
            self._amid_until = math.inf
        elif self._amid_until == math.inf:
            self._amid_until = self.server.relay.now + self.server.patience.head
            self._schedule()

    def _schedule(self) -> None:
        """Find out when `expire` is due next."""
        own = self._amid_until if self.streams else min(self._amid_until, self._quiet_until)
        self.deadline = min([own, *[stream.deadline for stream in self.streams.values()]])

    def _say(self) -> bool:
        """Send what was said, unless the system is known to take no more; returns whether it takes more."""
        return not self.outlet.waits and (not self.outlet.said or self._flush())

    def _flush(self) -> bool:
        """Send what waits and what was said; returns whether all is sent."""
        try:
            is_sent = self.outlet.flush()
        except OSError:
            self._lose()
            return False
        self._want(READ if is_sent else READ | WRITE)
        return is_sent

    def _linger(self, events: int) -> None:
        """Send what is left to send, and throw away what comes."""
        if events & READ:
            try:
                if not socket.socket.recv_into(self._socket, self.shared.inbox):  # below TLS: nobody is to read it
                    self._lose()
                    return
            except WOULD_BLOCK:
                pass
            except OSError:
                self._lose()
                return
        if not self._said_end and self._flush():
            self._said_end = True
            say_end(self._socket)

    def _lose(self) -> None:
        """End at once: there is no client any more."""
        if self._gone:
            return
        self._gone = self.closing = True
        for stream in list(self.streams.values()):
            stream.end("client_gone")
        self._reception.close()
        self.outlet.drop()
        self.server.poll.forget(self._socket.fileno())
        self._socket.close()
        self.server.leave(self)

    def _want(self, wanted: int) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self.server.poll.change(self._socket.fileno(), wanted)
