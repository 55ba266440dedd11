"""What all connections and tunnels of one event loop share."""

from typing import Final

from headgate.proxy.net.poller import Poller

COPY_SIZE: Final = 1 << 18
"""Bytes copied at once through the shared read buffer."""
TLS_RECORD_SIZE: Final = 1 << 14
"""Bytes in a TLS record at most. Reads inside TLS are never smaller: no poller reports what OpenSSL keeps back."""
MAX_BUFFERED: Final = 1 << 25
"""Bytes buffered in all tunnels together above which less is read at once."""


class LoopState:
    """The poller, the coarse clock, the read buffer, and the number of bytes that wait in memory."""

    __slots__ = ("buffer", "buffered", "now", "poller")

    def __init__(self, poller: Poller, *, now: float) -> None:
        self.poller = poller
        self.now = now
        """A coarse clock that the server advances: reading the system's at every event costs more than it is worth."""
        self.buffer = memoryview(bytearray(COPY_SIZE))
        """Holds what was read until it is written; valid until the next read of any connection."""
        self.buffered = 0
        """Bytes that wait in memory to be written, in all tunnels together."""
