"""A tunnel: two connected sockets, each byte of one passed on to the other, until both have said that they are done.

Each socket is one `Side`, told by the poll when it can be read or written. What was read and could not be written at
once *waits* at the side it is for, and its source is not read until it is gone: one piece at most is read ahead. An
idle tunnel owns two sides, two sockets, and no buffer.

The law of half-closed tunnels: the end of what one side says is passed on behind its last byte, and the other direction
goes on; but inside TLS, data that a client sends in the moment when its target ends may end the tunnel (`TlsSide`). A
side that is lost takes the other one with it, visibly: by a reset.
"""

import socket
import ssl
from collections.abc import Callable

from headgate.proxy.connect import Ending, Opened
from headgate.proxy.net.poller import READ, Poll
from headgate.proxy.tunnel_end import PIECE, Side, TlsSide, reset

__all__ = ["Relay", "Tunnel"]


class Relay:
    """What all tunnels of an event loop share; `left` is called after a tunnel is over and gone from `tunnels`."""

    __slots__ = ("buffer", "left", "now", "poll", "tunnels", "waiting")

    def __init__(self, poll: Poll, *, now: float, left: Callable[[], None] = lambda: None) -> None:
        self.poll = poll
        self.now = now
        """A coarse clock, which somebody moves on: reading the true one at every event costs more than it tells."""
        self.buffer = memoryview(bytearray(PIECE))
        self.waiting = 0
        """Bytes that wait in memory, in all tunnels together."""
        self.tunnels: set[Tunnel] = set()
        self.left = left

    def join(self, client: socket.socket, opened: Opened, early: bytes = b"") -> None:
        """Make a tunnel of a client's socket, which is watched for reads already, and the way to its target.

        `early` is what the client has sent ahead.
        """
        tunnel = Tunnel(self, client, opened)
        self.tunnels.add(tunnel)
        tunnel.start(early)

    def look_after(self) -> None:
        """End the tunnels whose time is over."""
        now = self.now
        for tunnel in [one for one in self.tunnels if one.moved + one.idle <= now or one.latest <= now]:
            tunnel.expire()

    def close(self, why: Ending) -> int:
        """End all tunnels; returns how many there were."""
        tunnels = list(self.tunnels)
        for tunnel in tunnels:
            tunnel.end(why)
        return len(tunnels)


class Tunnel:
    """See the module. `near` is the client's side, `far` the target's."""

    __slots__ = ("_closed", "_limits", "bounded", "far", "idle", "latest", "moved", "near", "relay")

    def __init__(self, relay: Relay, client: socket.socket, opened: Opened) -> None:
        limits = opened.limits
        self.relay = relay
        self._limits = limits
        self._closed = opened.closed
        self.bounded = limits.are_of_bytes
        """Whether its bytes are limited, and to be looked at while they pass."""
        self.moved = relay.now
        """When, on the relay's clock, bytes passed last."""
        self.idle = limits.idle
        """Seconds from then until it expires."""
        self.latest = relay.now + limits.max_seconds
        """When it expires in any case."""
        self.near: Side = TlsSide(self, client) if isinstance(client, ssl.SSLSocket) else Side(self, client)
        self.far = Side(self, opened.socket)
        self.near.other, self.far.other = self.far, self.near

    def start(self, early: bytes) -> None:
        """Begin."""
        near, far, poll = self.near, self.far, self.relay.poll
        near.wanted = far.wanted = READ
        poll.hand_over(near.descriptor, near)
        poll.watch(far.descriptor, READ, far)
        if early and self.admits(far, len(early)):
            far.count += len(early)
            far.give(memoryview(early))

    def admits(self, side: Side, count: int) -> bool:
        """Say whether so many bytes may pass to a side; if they may not, the tunnel is over."""
        received, sent = self.near.count, self.far.count
        if side is self.far:
            why = self._limits.broken(received, sent + count, sending=True)
        else:
            why = self._limits.broken(received + count, sent, sending=False)
        if why is not None:
            self.end(why)
        return why is None

    def room(self, most: int) -> int:
        """See `Limits.room`."""
        return self._limits.room(self.near.count + self.far.count, most)

    def expire(self) -> None:
        """End: the time is over."""
        self.end("max_seconds" if self.relay.now >= self.latest else "idle")

    def lost(self, side: "Side") -> None:
        """End: the connection of one side is broken."""
        self.end("client_gone" if side is self.near else "target_gone")

    def end(self, why: Ending) -> None:
        """Close both sides and say so, once."""
        relay, near, far = self.relay, self.near, self.far
        if self not in relay.tunnels:
            return
        relay.tunnels.discard(self)
        close = reset if why in {"client_gone", "target_gone"} else socket.socket.close
        for side in (near, far):
            relay.poll.drop(side.descriptor)
            side.count -= side.drop()
            close(side.socket)
            side.over = True
            del side.other, side.tunnel  # no cycles: nobody is to search the memory for tunnels that are over
        self._closed(near.count, far.count, why)
        relay.left()
