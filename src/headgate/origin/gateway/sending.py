"""What a file has on its way to an agent: from the file to the socket where that can be, and never much at once.

`os.sendfile` on the connection's own descriptor, whenever nothing waits in the transport's buffer, rather than the
loop's method of that name: uvloop has none, and asyncio's tells nothing of an agent that reads slowly. What the socket
does not take at once is read, given to the transport and waited for like everything else that is sent.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.origin.part import Content, Part

if TYPE_CHECKING:
    from headgate.origin.gateway.connection import AgentConnection

__all__ = ["Sending"]

_PIECE = 131_072
"""Bytes read at once: more than a transport holds before it says that the agent is slow."""
_MOST_AT_ONCE = 1 << 20
"""Bytes handed to the system before others get their turn."""


class Sending:
    """Stands in a connection where an `Exchange` does, with part of a file for the origin.

    The connection closes at once, before the content's end, when the file has changed meanwhile. `unread` says that
    the request has a body which nobody wants.
    """

    __slots__ = ("_agent", "_descriptor", "_held", "_offset", "_part", "_scheduled", "_transport", "_unread", "plain")

    begun = True
    takes_body = False
    waits_for_agent = False

    def __init__(self, agent: "AgentConnection", transport: asyncio.Transport, part: Content, *, unread: bool) -> None:
        self.plain = False
        self._agent = agent
        self._transport = transport
        self._part = part
        self._unread = unread
        self._offset = 0
        self._held = self._scheduled = False
        sock = transport.get_extra_info("socket")
        is_plain = sock is not None and transport.get_extra_info("ssl_object") is None
        can_copy = is_plain and hasattr(os, "sendfile") and isinstance(part, Part)
        self._descriptor: Callable[[], int] | None = sock.fileno if can_copy else None

    # What the connection calls.

    def start(self) -> None:
        """Begin, once the head has been given to the transport."""
        if self._descriptor is not None:
            # Held whenever anything is buffered, and let go when nothing is: then the file can go straight to the
            # socket. TLS has its own idea of what is buffered, and keeps its limits.
            self._transport.set_write_buffer_limits(high=0)
        self._come_back()

    def feed(self, data: bytes) -> bytes:
        """Take nothing: no byte from the agent belongs to this."""
        return data

    def hold_origin(self) -> None:
        """Wait: the agent reads slowly."""
        self._held = True

    def release_origin(self) -> None:
        """Go on, but not at once: asyncio cannot bear that a transport is closed while it says that it is empty."""
        self._held = False
        self._come_back()

    def abandon(self) -> None:
        """Send no more: the agent is gone."""
        self._held = True

    def give_up(self) -> None:
        """Hear that nothing moves any more."""
        self._agent.abort()

    # The turns.

    def _come_back(self) -> None:
        if not self._scheduled and not self._held:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._scheduled = False
        self._go_on()

    def _go_on(self) -> None:
        """Send as much as the system takes now; then come back, soon or when the transport has let it go."""
        if self._held or self._transport.is_closing():
            return
        self._agent.watch()
        if self._offset >= self._part.length:
            self._transport.set_write_buffer_limits()
            self._agent.exchange_ended(unread=self._unread)
            return
        try:
            self._offset += self._send_straight() or self._send_read()
        except OSError:
            self._agent.abort()
            return
        self._come_back()

    def _send_straight(self) -> int:
        """Have the system copy; returns how much, 0 where it takes nothing or cannot."""
        # The last piece is always read: a file that has changed must not be sent to its end as if it had not.
        part = self._part
        left = min(part.length - self._offset - _PIECE, _MOST_AT_ONCE)
        if self._descriptor is None or left <= 0 or self._transport.get_write_buffer_size():
            return 0
        assert isinstance(part, Part)
        if not part.file.is_as_opened():
            raise OSError("the file has changed")
        try:
            return os.sendfile(self._descriptor(), part.file.fileno(), part.offset + self._offset, left)
        except BlockingIOError:
            return 0
        except OSError:
            # This file system has no such thing; or the agent is gone, of which the transport will hear by itself.
            self._descriptor = None
            return 0

    def _send_read(self) -> int:
        length = min(self._part.length - self._offset, _PIECE)
        self._transport.write(self._part.read(self._offset, self._offset + length))
        return length
