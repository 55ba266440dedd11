"""What the HTTP/2 connections of one event loop share: the buffers, and how wide their windows may be all together."""

from typing import Final

from headgate.proxy.http2.flow_control import MOST_OF_ALL
from headgate.proxy.http2.frames import DataBuffer
from headgate.proxy.tunnel_end import RECORD

__all__ = ["INBOX", "Shared"]

INBOX: Final = 1 << 18
"""Bytes read from one connection before others get their turn."""
_MOST_GRANTED: Final = 1 << 25
"""Bytes that the windows of all connections together may be wider than they have to be."""


class Shared:
    """See the module."""

    def __init__(self) -> None:
        self.inbox = memoryview(bytearray(INBOX + RECORD))
        """What was read from a connection, while it is looked at."""
        self.outbox = DataBuffer(INBOX // RECORD)
        """What was read from a target, until it is sent."""
        self._granted = 0

    def to_grant(self) -> int:
        """Say by how much a connection's window may grow."""
        return min(MOST_OF_ALL, _MOST_GRANTED - self._granted)

    def grant(self, count: int) -> None:
        """Hear by how much one did; by less than nothing when it is over."""
        self._granted += count
