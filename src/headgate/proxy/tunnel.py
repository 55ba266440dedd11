"""HTTP/1.1 tunnels: two connected sockets, and each byte of one relayed to the other.

Each socket is one `TunnelEnd`, which the poller notifies. What was read and could not be written at once is buffered at
the end that it is for, and its source is not read until it is written: at most one piece is read ahead. An idle tunnel
has two ends, two sockets and no buffer.

Half-closed tunnels: the end of one direction is passed on after its last byte, and the other direction goes on; but
inside TLS, data that a client sends while its target closes may close the tunnel (`TlsTunnelEnd`). If the connection to
one end is lost, the other one is reset.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import cast

from headgate.proxy.connect import AcceptedConnect, CloseReason
from headgate.proxy.poller import COPY_SIZE, MAX_BUFFERED, READ, TLS_RECORD_SIZE, WRITE, LoopState
from headgate.proxy.sockets import WOULD_BLOCK, reset


class Tunnels:
    """The HTTP/1.1 tunnels of an event loop. `on_closed` is called after each that is closed."""

    __slots__ = ("_on_closed", "open", "state")

    def __init__(self, state: LoopState, *, on_closed: Callable[[], None] = lambda: None) -> None:
        self.state = state
        self.open: set[Tunnel] = set()
        self._on_closed = on_closed

    def start(self, client: socket.socket, accepted: AcceptedConnect, early_data: bytes = b"") -> None:
        """Relay between a client's socket, which the poller watches for reads already, and its target.

        `early_data` is what the client sent after its request head.
        """
        tunnel = Tunnel(self.state, client, accepted, on_closed=self._closed)
        self.open.add(tunnel)
        tunnel.start(early_data)

    def expire(self) -> None:
        """Close the tunnels whose time is over."""
        now = self.state.now
        for tunnel in [one for one in self.open if one.last_active + one.idle <= now]:
            tunnel.close("idle")

    def close(self, reason: CloseReason) -> None:
        """Close all."""
        for tunnel in list(self.open):
            tunnel.close(reason)

    def _closed(self, tunnel: "Tunnel") -> None:
        self.open.discard(tunnel)
        self._on_closed()


class Tunnel:
    """One tunnel and its two ends."""

    __slots__ = (
        "_on_closed", "_report", "client_end", "closed", "idle", "last_active", "state", "target_end",
    )  # fmt: skip

    def __init__(
        self,
        state: LoopState,
        client: socket.socket,
        accepted: AcceptedConnect,
        *,
        on_closed: Callable[["Tunnel"], None],
    ) -> None:
        self.state = state
        self._report = accepted.on_closed
        self._on_closed = on_closed
        self.closed = False
        self.last_active = state.now
        """When bytes passed last, on the coarse clock."""
        self.idle = accepted.idle
        """Seconds without a byte until it expires."""
        self.client_end = TlsTunnelEnd(self, client) if isinstance(client, ssl.SSLSocket) else TunnelEnd(self, client)
        self.target_end = TunnelEnd(self, accepted.socket)
        self.client_end.other, self.target_end.other = self.target_end, self.client_end

    def start(self, early_data: bytes) -> None:
        """Register both ends, and send the early data."""
        client_end, target_end, poller = self.client_end, self.target_end, self.state.poller
        client_end.events = target_end.events = READ
        poller.hand_over(client_end.descriptor, client_end)
        poller.register(target_end.descriptor, READ, target_end)
        if early_data:
            target_end.count += len(early_data)
            target_end.write(memoryview(early_data))

    def lost(self, end: "TunnelEnd") -> None:
        """Close: the connection of one end is broken."""
        self.close("client_gone" if end is self.client_end else "target_gone")

    def close(self, reason: CloseReason) -> None:
        """Close both ends and report it, once."""
        if self.closed:
            return
        self.closed = True
        client_end, target_end = self.client_end, self.target_end
        close_socket = reset if reason in {"client_gone", "target_gone"} else socket.socket.close
        for end in (client_end, target_end):
            self.state.poller.drop(end.descriptor)
            end.discard_buffer()
            close_socket(end.socket)
            del end.other  # no reference cycles: the garbage collector need not search for closed tunnels
        self._report(client_end.count, target_end.count, reason)
        self._on_closed(self)
        del client_end.tunnel, target_end.tunnel


class TunnelEnd:
    """One of a tunnel's two sockets, and what is buffered to be written to it."""

    __slots__ = (
        "_buffered", "_registered", "count", "descriptor", "events", "finished", "input_ended", "other", "socket",
        "tunnel",
    )  # fmt: skip

    is_plain = True
    """Whether the socket's bytes are the tunnel's: no TLS."""

    def __init__(self, tunnel: Tunnel, sock: socket.socket) -> None:
        self.tunnel = tunnel
        self.socket = sock
        self.descriptor = sock.fileno()
        self.other: TunnelEnd = self
        """The other end."""
        self.events = 0
        """What the poller was asked for."""
        self._registered = True
        self.count = 0
        """Bytes read for this end; after the close, without those that were never written to it."""
        self.input_ended = False
        """Whether this end has sent everything."""
        self.finished = False
        """Whether this end was told that the other one has sent everything."""
        self._buffered: memoryview | None = None

    @property
    def is_blocked(self) -> bool:
        """Whether something waits to be written here."""
        return self._buffered is not None

    @property
    def passed(self) -> int:
        """Bytes written to this end."""
        return self.count - self._buffered_size()

    def ready(self, events: int) -> None:
        """Write and read what can be; see `Pollable`."""
        tunnel = self.tunnel
        if events & WRITE:
            self._flush()
        if events & READ and not tunnel.closed:
            if self.events & READ:
                self._read()
            elif self._registered:
                self._handle_unrequested()

    def write(self, piece: memoryview) -> bool:
        """Write a piece, and buffer what the system does not take; returns whether the tunnel is still open."""
        try:
            sent = self.socket.send(piece) if self.is_plain else self._send(piece)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.tunnel.lost(self)
            return False
        if sent < len(piece):
            self._buffer(bytes(piece[sent:]))
        return True

    def discard_buffer(self) -> None:
        """Drop what is buffered, when the tunnel closes; it does not count as passed."""
        discarded = self._buffered_size()
        self.tunnel.state.buffered -= discarded
        self.count -= discarded
        self._buffered = None

    # From here to the other end.

    def _read(self) -> None:
        """Read what there is, once, and pass it on."""
        self._copy()

    def _copy(self) -> int:
        """Pass one piece on; returns its length, 0 if there was none or the tunnel is closed."""
        other, tunnel = self.other, self.tunnel
        state = tunnel.state
        size = COPY_SIZE if state.buffered < MAX_BUFFERED else TLS_RECORD_SIZE
        try:
            # A plain socket is called directly, here and in `write`: another call is measurable in each echo.
            count = self.socket.recv_into(state.buffer, size) if self.is_plain else self._receive(state.buffer, size)
        except WOULD_BLOCK:
            return 0
        except OSError:
            tunnel.lost(self)
            return 0
        if not count:
            self._handle_end()
            return 0
        other.count += count
        tunnel.last_active = state.now
        return count if other.write(state.buffer[:count]) else 0

    def _handle_end(self) -> None:
        """Pass the end on: all input was read, so nothing is buffered before it."""
        tunnel = self.tunnel
        self.input_ended = True
        self.other.finish()
        if not tunnel.closed:
            self._wait_for(self.events & ~READ)

    def _handle_unrequested(self) -> None:
        """Handle EPOLLERR and EPOLLHUP, which are reported even if no events were requested."""
        if self.input_ended or self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.tunnel.lost(self)
        else:
            self.tunnel.state.poller.unregister(self.descriptor)  # it would be reported again and again
            self._registered = False

    # To here from the other end.

    def _buffer(self, rest: bytes) -> None:
        """Keep bytes until the system takes more."""
        self.tunnel.state.buffered += len(rest)
        self._buffered = memoryview(rest)
        self._wait_to_write()

    def _wait_to_write(self) -> None:
        self._wait_for(self.events | WRITE)
        self.other._wait_for(self.other.events & ~READ)  # noqa: SLF001 - the same class

    def _flush(self) -> None:
        """Write what is buffered; then the other end may be read again."""
        tunnel = self.tunnel
        try:
            if self._buffered is not None:
                self._send_buffered(self._buffered)
        except BlockingIOError:
            self._wait_to_write()
            return
        except OSError:
            tunnel.lost(self)
            return
        if self.is_blocked:
            return
        self._wait_for(self.events & ~WRITE)
        self.other.resume()

    def _send_buffered(self, buffered: memoryview) -> None:
        sent = self._send(buffered)
        state = self.tunnel.state
        state.buffered -= sent
        self._buffered = buffered[sent:] if sent < len(buffered) else None
        if sent:
            self.tunnel.last_active = state.now

    def _buffered_size(self) -> int:
        return 0 if self._buffered is None else len(self._buffered)

    def resume(self) -> None:
        """Read again, now that nothing is buffered at the other end."""
        if not self.input_ended:
            self._wait_for(self.events | READ)

    def finish(self) -> None:
        """Tell this end that the other one has sent everything; after both ends the tunnel is closed."""
        self.finished = True
        other_direction_open = self._shutdown_write()
        if self.other.finished or not other_direction_open:
            self.tunnel.close("ended")

    def _wait_for(self, events: int) -> None:
        if events == self.events:
            return
        poller = self.tunnel.state.poller
        if self._registered:
            poller.modify(self.descriptor, events)
        else:
            poller.register(self.descriptor, events, self)
            self._registered = True
        self.events = events

    # The socket.

    def _receive(self, buffer: memoryview, size: int) -> int:
        """Receive what there is, if the socket is not plain."""
        raise NotImplementedError

    def _send(self, piece: memoryview) -> int:
        """Send what the system takes now; returns 0 or raises `BlockingIOError` if that is nothing."""
        return self.socket.send(piece)

    def _shutdown_write(self) -> bool:
        """Tell the peer that nothing more follows; returns whether the other direction can go on."""
        if not self.other.finished:  # else the socket is closed next, which says the same
            try:  # noqa: SIM105 - suppress() would cost a call for each tunnel
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the connection is lost already, which the poller will report
        return True


class TlsTunnelEnd(TunnelEnd):
    """A client's end inside TLS: `socket` is an `ssl.SSLSocket` after its handshake."""

    __slots__ = ("_read_needs_write",)

    is_plain = False

    def __init__(self, tunnel: Tunnel, sock: socket.socket) -> None:
        super().__init__(tunnel, sock)
        self._read_needs_write = False
        """Whether nothing can be read before something is written."""

    def ready(self, events: int) -> None:
        """Write and read what can be; see `Pollable`."""
        if self._read_needs_write and events & WRITE:
            self._read_needs_write = False
            if not (self.input_ended or self.other.is_blocked):
                self._wait_for(self.events | READ)
        super().ready(events)

    def _read(self) -> None:
        """Read record by record, as long as they are full."""
        for _ in range(COPY_SIZE // TLS_RECORD_SIZE):
            if self._copy() != TLS_RECORD_SIZE or not self.events & READ:
                break

    def _receive(self, buffer: memoryview, size: int) -> int:
        try:
            return self.socket.recv_into(buffer, max(size, TLS_RECORD_SIZE))
        except ssl.SSLZeroReturnError:
            return 0  # what Python makes of the peer's end after ours has been sent
        except ssl.SSLWantWriteError:
            # The client renews its keys and reads no answer to that: its input would be reported again and again.
            self._read_needs_write = True
            self._wait_for(self.events & ~READ | WRITE)
            raise

    def _send(self, piece: memoryview) -> int:
        sent = 0
        with contextlib.suppress(*WOULD_BLOCK):
            while sent < len(piece):
                sent += self.socket.send(piece[sent:] if sent else piece)
        return sent

    def _shutdown_write(self) -> bool:
        """Send close_notify; see `TunnelEnd`.

        Python's `unwrap` then reads once, for the peer's close_notify. A record of data that it finds instead is lost,
        and with it that direction: the tunnel closes, as it may once its target has closed (RFC 9110, 9.3.6).
        """
        try:
            cast("ssl.SSLSocket", self.socket).unwrap()
        except WOULD_BLOCK:
            return True
        except ssl.SSLError:
            return False
        except (OSError, ValueError):
            return True  # the connection is lost already, which the poller will report
        return False  # the peer has sent its close_notify, too
