"""What is said to a client, in order; what the system does not take now waits.

Frames about other things than DATA are put into `said`, at any time, and go with the next `flush`. DATA is begun
only while nothing waits; whoever has more of it then waits as well. So no more than one piece is ever kept.
"""

import socket

from headgate.proxy.tunnel import Relay
from headgate.proxy.tunnel_end import WOULD_BLOCK

__all__ = ["Outlet"]

_AT_ONCE = 1 << 16
"""Bytes given to the system in one go: TLS says of these only whether all are sent."""


class Outlet:
    """The sending half of a client's socket."""

    __slots__ = ("_kept", "_relay", "_socket", "said")

    def __init__(self, sock: socket.socket, relay: Relay) -> None:
        self._socket = sock
        self._relay = relay
        self._kept = memoryview(b"")  # what waits: given to TLS once, it has to be given again as it was
        self.said = bytearray()
        """Whole frames to be sent, behind what waits."""

    @property
    def waits(self) -> bool:
        """Whether the system takes no more now."""
        return bool(self._kept)

    def flush(self) -> bool:
        """Send what waits, and what was said; returns whether all is sent. Raises `OSError`."""
        if self._kept:
            sent = self._send(self._kept)
            self._relay.waiting -= sent
            self._kept = self._kept[sent:]
        if self.said and not self._kept:
            frames = bytes(self.said)
            self.said.clear()
            self.send(memoryview(frames))
        return not self._kept

    def send(self, frames: memoryview) -> None:
        """Send frames, and keep what is not taken; only while nothing waits. Raises `OSError`."""
        position, end = 0, len(frames)
        while position < end:
            piece = frames[position : position + _AT_ONCE]
            sent = self._send(piece)
            position += sent
            if sent < len(piece):
                self._kept = memoryview(bytes(frames[position:]))
                self._relay.waiting += len(self._kept)
                return

    def drop(self) -> None:
        """Let go of everything."""
        self._relay.waiting -= len(self._kept)
        self._kept = memoryview(b"")
        self.said.clear()

    def _send(self, piece: memoryview) -> int:
        try:
            return self._socket.send(piece)
        except WOULD_BLOCK:
            return 0
