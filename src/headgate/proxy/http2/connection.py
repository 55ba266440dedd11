"""A client's connection that speaks HTTP/2: its socket, its streams, its end.

One turn: read what there is, up to a bound; see to every frame; pass on what came for each tunnel; open windows anew;
send what is to be said. A connection ends in one of three ways. It is *left* when it has nothing to do, or does what it
must not: GOAWAY says why, and what still comes is thrown away for a while, so that the GOAWAY is not lost. It is *lost*
when the client's socket is. Or the proxy ends, and it is closed with everything within.

The end of the proxy is told at its beginning, by a GOAWAY of the largest stream number there is (6.8): what the client
sends before it hears of that is decided on, refused that is, and tunnels go on. The true number comes last.
"""

import contextlib
import math
import socket
import ssl
from typing import TYPE_CHECKING, Final

from h2.errors import ErrorCodes

from headgate.proxy.http2.answering import Answering
from headgate.proxy.http2.control import Control
from headgate.proxy.http2.flow_control import FIRST_WINDOW
from headgate.proxy.http2.frames import LARGEST_STREAM, LONGEST_PAYLOAD, Violation, goaway, ping
from headgate.proxy.http2.outlet import Outlet
from headgate.proxy.http2.reception import Reception
from headgate.proxy.http2.shared import INBOX, Shared
from headgate.proxy.http2.stream import Stream
from headgate.proxy.net.poller import READ, WRITE
from headgate.proxy.net.tls import say_end
from headgate.proxy.tunnel_end import MOST_WAITING, RECORD, WOULD_BLOCK

if TYPE_CHECKING:
    from headgate.proxy.server import TunnelServer

__all__ = ["Http2", "Http2Connection"]

_MOST_READS: Final = 64
"""Reads in one turn: each brings one TLS record, however little is in it."""
_MOST_UNSENT: Final = 1 << 18
"""Bytes that the system may have waiting to be sent: all that is behind them is late by as much."""
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
        "_amid", "_amid_until", "_appetite", "_deaf", "_draining", "_echoed", "_gone", "_owes", "_quiet_until",
        "_said_end", "_socket", "_stalled", "_wanted", "answering", "client_leaves", "closing", "control", "deadline",
        "held", "outlet", "reception", "server", "shared", "streams", "window",
    )  # fmt: skip

    def __init__(
        self, shared: Shared, server: "TunnelServer", sock: socket.socket, *, peer: tuple[str, int], surplus: bool
    ) -> None:
        self.shared = shared
        self.server = server
        self._socket = sock
        self.outlet = Outlet(sock, server.relay)
        self.control = Control(self.outlet.said)
        self.reception = Reception(self)
        self.answering = Answering(self, sock, peer, surplus=surplus)
        self.streams: dict[int, Stream] = {}
        """Those that are decided on or tunnels, by their numbers."""
        self._stalled: dict[Stream, None] = {}  # they have more to send than there is room for, in order
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
        self._owes = False  # whether a tunnel is over of which the client may not have everything
        self._deaf = False  # whether nothing can be read before something is written
        self._amid = 0  # what the client is amid, by a number
        self._amid_until = math.inf
        self._quiet_until = self.deadline = server.relay.now + server.patience.quiet
        """When, on the coarse clock, `expire` is due: not later than the earliest of all that is within."""
        self._want(READ | WRITE)  # the first turn tells the settings
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with contextlib.suppress(OSError):  # not TCP
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MOST_UNSENT)
        if server.draining:
            self._announce_end()  # it shook hands meanwhile

    # What the poll and the server call.

    @property
    def busy(self) -> int:
        """How many tunnels there are within, those being decided on included.

        At the end of the proxy one is still counted, when all are over, for what the client may not have of them yet.
        """
        return sum(stream.is_tunnel for stream in self.streams.values()) or int(self._draining and self._owes)

    @property
    def passed(self) -> tuple[int, int]:
        """How many bytes the tunnels within have had received and sent so far."""
        streams = self.streams.values()
        return sum(stream.received for stream in streams), sum(stream.passed_on for stream in streams)

    def ready(self, events: int) -> None:
        """See `Ready`."""
        if self.closing:
            self._linger(events)
            return
        try:
            if events & WRITE:
                self._deaf = False
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
        if not self.closing and not self._draining:
            self._announce_end()
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

    def add(self, stream: Stream) -> None:
        """Take a new stream in."""
        self.streams[stream.number] = stream
        self.deadline = min(self.deadline, stream.deadline)

    def forget(self, stream: Stream, code: ErrorCodes | None) -> None:
        """Let go of a stream that is over, and reset it for the client, unless it knows."""
        del self.streams[stream.number]
        self._stalled.pop(stream, None)
        self._owes = self._owes or stream.is_tunnel
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
            self._stalled[stream] = None
            return 0
        # Where several wait for room, each has a little of it in turn.
        most = INBOX // (1 + len(self._stalled)) if self.server.relay.waiting < MOST_WAITING else RECORD
        return min(stream.window, self.window, max(most, RECORD))

    def send(self, stream: Stream, frames: memoryview, count: int) -> None:
        """Send frames of DATA with `count` bytes of payload, for which there was room."""
        stream.window -= count
        self.window -= count
        self.reception.paid(-(-count // LONGEST_PAYLOAD))
        try:
            self.outlet.send(frames)
        except OSError:
            self._lose()
        else:
            self._want(READ | WRITE if self.outlet.waits else READ)

    def hear_echo(self, opaque: bytes) -> None:
        """Hear a ping's answer: whatever the client sent before it heard of the end has come."""
        if self._draining and opaque == _PROBE:
            self._echoed = True

    def settle(self) -> None:
        """End a turn: say what is to be said, and see whether anything is left to do."""
        if self.closing or self._gone:
            return
        self.reception.credit()
        self._go_on()
        if not self._say():
            if len(self.outlet.said) > _MOST_SAID:
                self.leave(ErrorCodes.ENHANCE_YOUR_CALM, "answers are not read")
        elif not self.streams and (self.client_leaves or self._echoed):
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
            for _ in range(_MOST_READS):
                got = self._socket.recv_into(inbox[count : self._appetite + RECORD])
                count += got
                ended = not got
                if ended or count >= self._appetite:
                    break
        except ssl.SSLWantWriteError:
            if self._deaf:
                self._lose()  # there is an error, or an end, that can be heard no other way
                return
            # The client changes keys, and reads no answer to that: what it sends would be told of again and again.
            self._deaf = True
            self._want(WRITE)
        except WOULD_BLOCK:
            pass
        except OSError:
            self._lose()
            return
        if count:
            amount = self.reception.hear(inbox[:count])
            self.reception.deliver()
            # Many small frames take long to see to: who sends such gets shorter turns.
            self._appetite = min(INBOX, 2 * self._appetite) if amount * 2 > count else RECORD
            self._watch_for_more()
        if ended and not self.closing:
            self._lose()

    def _go_on(self) -> None:
        """Have those go on that had no room, the first one first, for as long as there is room."""
        while self._stalled and self.window > 0 and self._say():
            stream = next(iter(self._stalled))
            del self._stalled[stream]
            stream.go_on()

    def _announce_end(self) -> None:
        self._draining = True
        self._owes = self.outlet.waits
        self.outlet.said += goaway(LARGEST_STREAM, ErrorCodes.NO_ERROR, "the proxy ends") + ping(_PROBE)
        self._quiet_until = self.server.relay.now + _ROUND_TRIP
        self._schedule()

    def _watch_for_more(self) -> None:
        """Give the client some time for what it has begun, counted from its beginning."""
        before, self._amid = self._amid, self.reception.amid
        if not self._amid:
            self._amid_until = math.inf
        elif self._amid != before:
            self._amid_until = self.server.relay.now + self.server.patience.head
            self.deadline = min(self.deadline, self._amid_until)

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
        self._owes = False
        self.reception.close()
        self.outlet.drop()
        self.server.poll.forget(self._socket.fileno())
        self._socket.close()
        self.server.leave(self)

    def _want(self, wanted: int) -> None:
        if self._deaf:
            wanted = WRITE
        if wanted != self._wanted:
            self._wanted = wanted
            self.server.poll.change(self._socket.fileno(), wanted)
