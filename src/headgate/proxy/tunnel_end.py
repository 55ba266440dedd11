"""One of a tunnel's two sockets: reads from here go to the other side, and what is written here came from there.

What is read and cannot be written at once waits at the side it is for, and until it is gone the side it came from is
not read.
"""

import contextlib
import socket
import ssl
import struct
from typing import TYPE_CHECKING, cast

from headgate.proxy.net.poller import READ, WRITE

if TYPE_CHECKING:
    from headgate.proxy.tunnel import Tunnel

__all__ = ["MOST_WAITING", "PIECE", "RECORD", "WOULD_BLOCK", "Side", "TlsSide", "reset"]

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket says that can do nothing now."""

PIECE = 1 << 18
"""Bytes copied at once, through one buffer that all tunnels share."""
_SMALL_PIECE = 1 << 14
"""Bytes copied at once when too much waits everywhere."""
RECORD = 1 << 14
"""Bytes in a TLS record at most. Less is never read at once: what OpenSSL keeps back no poll tells of."""
MOST_WAITING = 1 << 25
"""Bytes that may wait in memory, in all tunnels together, before less is read at once."""
_RESET = struct.pack("ii", 1, 0)


def reset(sock: socket.socket) -> None:
    """Close a connection so that the peer sees a reset, not an end."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()


class Side:
    """One of a tunnel's two sockets, and what waits to be written to it."""

    __slots__ = (
        "_waiting", "_watched", "count", "descriptor", "ended", "finished", "other", "over", "socket",
        "tunnel", "wanted",
    )  # fmt: skip

    is_plain = True
    """Whether its bytes are those of the socket."""

    def __init__(self, tunnel: "Tunnel", sock: socket.socket) -> None:
        self.tunnel = tunnel
        self.socket = sock
        self.descriptor = sock.fileno()
        self.other: Side = self
        """The other one."""
        self.over = False
        """Whether the tunnel is, and with it all that is said of `tunnel` and `other`."""
        self.wanted = 0
        """What the poll was asked to tell."""
        self._watched = True
        self.count = 0
        """Bytes read for it; less, in the end, what was never written to it."""
        self.ended = False
        """Whether it has said all."""
        self.finished = False
        """Whether it was told that the other one has."""
        self._waiting: memoryview | None = None

    @property
    def waits(self) -> bool:
        """Whether something waits to be written here."""
        return self._waiting is not None

    @property
    def passed(self) -> int:
        """Bytes read for it that do not wait to be written."""
        return self.count - self._count_waiting()

    def ready(self, events: int) -> None:
        """See `Ready`."""
        if events & WRITE:
            self._flush()
        if events & READ and not self.over:
            if self.wanted & READ:
                self._pull()
            elif self._watched:
                self._hear_unasked()

    def give(self, piece: memoryview) -> bool:
        """Write a piece, and keep what the system does not take now; returns whether the tunnel goes on."""
        try:
            sent = self.socket.send(piece) if self.is_plain else self._send(piece)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.tunnel.lost(self)
            return False
        if sent < len(piece):
            self._keep(bytes(piece[sent:]))
        return True

    def drop(self) -> int:
        """Let go of what waits, at the tunnel's end; returns how many bytes that were."""
        relay, dropped = self.tunnel.relay, self._count_waiting()
        if self._waiting is not None:
            relay.waiting -= dropped
            self._waiting = None
        return dropped

    # From here to the other side.

    def _pull(self) -> None:
        """Read what there is, once, and pass it on."""
        self._copy()

    def _copy(self) -> int:
        """Pass a piece on through memory; returns its length, 0 where there was none or the tunnel is over."""
        other, tunnel = self.other, self.tunnel
        relay = tunnel.relay
        most = PIECE if relay.waiting < MOST_WAITING else _SMALL_PIECE
        if tunnel.bounded:
            most = tunnel.room(most)
        try:
            # A plain socket is asked directly, here and in `give`: a call more would be felt in each echo.
            count = self.socket.recv_into(relay.buffer, most) if self.is_plain else self._receive(relay.buffer, most)
        except WOULD_BLOCK:
            return 0
        except OSError:
            tunnel.lost(self)
            return 0
        if not count:
            self._hear_end()
            return 0
        if tunnel.bounded and not tunnel.admits(other, count):
            return 0
        other.count += count
        tunnel.moved = relay.now
        return count if other.give(relay.buffer[:count]) else 0

    def _hear_end(self) -> None:
        """Pass the end on: it was read, so nothing waits before it."""
        self.ended = True
        self.other.finish()
        if not self.over:
            self._want(self.wanted & ~READ)

    def _hear_unasked(self) -> None:
        """Hear of what cannot be declined: an error; or that both directions are over while there is more to read."""
        if self.ended or self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.tunnel.lost(self)
        else:
            self.tunnel.relay.poll.forget(self.descriptor)  # it would be told of again and again
            self._watched = False

    # To here from the other side.

    def _keep(self, rest: bytes) -> None:
        """Have this wait until the system takes more."""
        self.tunnel.relay.waiting += len(rest)
        self._waiting = memoryview(rest)
        self._hold()

    def _hold(self) -> None:
        self._want(self.wanted | WRITE)
        self.other._want(self.other.wanted & ~READ)  # noqa: SLF001 - the same class

    def _flush(self) -> None:
        """Write what waits; then the other side may be read again."""
        tunnel = self.tunnel
        try:
            if self._waiting is not None:
                self._send_waiting(self._waiting)
        except BlockingIOError:
            self._hold()
            return
        except OSError:
            tunnel.lost(self)
            return
        if self.waits:
            return
        self._want(self.wanted & ~WRITE)
        self.other.resume()

    def _send_waiting(self, waiting: memoryview) -> None:
        sent = self._send(waiting)
        self.tunnel.relay.waiting -= sent
        self._waiting = waiting[sent:] if sent < len(waiting) else None
        if sent:
            self.tunnel.moved = self.tunnel.relay.now

    def _count_waiting(self) -> int:
        return 0 if self._waiting is None else len(self._waiting)

    def resume(self) -> None:
        """Be read again, now that nothing waits at the other side."""
        if not self.ended:
            self._want(self.wanted | READ)

    def finish(self) -> None:
        """Tell it that the other one has said all; with both told, the tunnel is over."""
        self.finished = True
        goes_on = self._say_end()
        if self.other.finished or not goes_on:
            self.tunnel.end("ended")

    def _want(self, wanted: int) -> None:
        if wanted == self.wanted:
            return
        poll = self.tunnel.relay.poll
        if self._watched:
            poll.change(self.descriptor, wanted)
        else:
            poll.watch(self.descriptor, wanted, self)
            self._watched = True
        self.wanted = wanted

    # The socket.

    def _receive(self, buffer: memoryview, most: int) -> int:
        """Receive what there is, where the socket is not plain."""
        raise NotImplementedError

    def _send(self, piece: memoryview) -> int:
        """Send what the system takes now; raises `BlockingIOError` or nothing where that is nothing."""
        return self.socket.send(piece)

    def _say_end(self) -> bool:
        """Tell the peer that nothing more is coming; returns whether the other direction can go on."""
        if not self.other.finished:  # else it is closed next, which says the same
            try:  # noqa: SIM105 - this costs nothing where nothing is raised
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the connection is lost already, of which the poll will tell
        return True


class TlsSide(Side):
    """A client's side inside TLS: `socket` is an `ssl.SSLSocket` that has shaken hands."""

    __slots__ = ("_deaf",)

    is_plain = False

    def __init__(self, tunnel: "Tunnel", sock: socket.socket) -> None:
        super().__init__(tunnel, sock)
        self._deaf = False
        """Whether nothing can be read before something is written."""

    def ready(self, events: int) -> None:
        """See `Ready`."""
        if self._deaf and events & WRITE:
            self._deaf = False
            if not (self.ended or self.other.waits):
                self._want(self.wanted | READ)
        super().ready(events)

    def _pull(self) -> None:
        """Read record by record, for as long as they are full."""
        for _ in range(PIECE // RECORD):
            if self._copy() != RECORD or not self.wanted & READ:
                break

    def _receive(self, buffer: memoryview, most: int) -> int:
        try:
            return self.socket.recv_into(buffer, max(most, RECORD))
        except ssl.SSLZeroReturnError:
            return 0  # what Python makes of the other's end once ours has been said
        except ssl.SSLWantWriteError:
            # The client changes keys, and reads no answer to that: what it sends would be told of again and again.
            self._deaf = True
            self._want(self.wanted & ~READ | WRITE)
            raise

    def _send(self, piece: memoryview) -> int:
        sent = 0
        with contextlib.suppress(*WOULD_BLOCK):
            while sent < len(piece):
                sent += self.socket.send(piece[sent:] if sent else piece)
        return sent

    def _say_end(self) -> bool:
        """Send close_notify; see `Side`.

        Python's `unwrap` then reads once, for the peer's close_notify. A record of data that it finds instead is lost,
        and with it that direction: the tunnel ends, as it may once its target has closed (9110 9.3.6).
        """
        try:
            cast("ssl.SSLSocket", self.socket).unwrap()
        except WOULD_BLOCK:
            return True
        except ssl.SSLError:
            return False
        except (OSError, ValueError):
            return True  # the connection is lost already, of which the poll will tell
        return False  # the peer has said the same
