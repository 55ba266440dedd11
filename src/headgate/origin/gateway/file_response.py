"""The body of a response from a file: from the file to the socket where that can be, and never much at once.

`os.sendfile` on the connection's own descriptor, whenever nothing waits in the transport's buffer, rather than the
loop's method of that name: uvloop has none, and asyncio's reports nothing of a client that reads slowly. What the
socket does not take at once is read, given to the transport and waited for like everything else that is sent.
"""

import asyncio
import os
from collections.abc import Callable

from headgate.origin.file_slice import BodySource, FileSlice
from headgate.origin.gateway.interfaces import Downstream

PIECE_SIZE = 131_072
"""Bytes read at once: more than a transport holds before it pauses its writer."""
MAX_PER_TURN = 1 << 20
"""Bytes handed to the system before other connections get their turn."""


class FileResponse:
    """Takes the place of an `Exchange` in a client's connection, with content from a file instead of the origin.

    The connection is closed before the content's end when the file has changed meanwhile; after it, unless `keep`.
    `unread` means that the request has a body that is not read.
    """

    __slots__ = (
        "_client", "_descriptor", "_keep", "_offset", "_paused", "_scheduled", "_source", "_transport", "_unread",
    )  # fmt: skip

    begun = True
    takes_body = False
    waits_for_client = False

    def __init__(
        self, client: Downstream, transport: asyncio.Transport, source: BodySource, *, keep: bool, unread: bool
    ) -> None:
        self._client = client
        self._transport = transport
        self._source = source
        self._keep = keep
        self._unread = unread
        self._offset = 0
        self._paused = self._scheduled = False
        sock = transport.get_extra_info("socket")
        is_plain = sock is not None and transport.get_extra_info("ssl_object") is None
        can_copy = is_plain and hasattr(os, "sendfile") and isinstance(source, FileSlice)
        self._descriptor: Callable[[], int] | None = sock.fileno if can_copy else None

    # What the connection calls.

    def start(self) -> None:
        """Begin, once the head has been given to the transport."""
        if self._descriptor is not None:
            # Paused whenever anything is buffered, and resumed when nothing is: then the file can go straight to the
            # socket. TLS has its own idea of what is buffered, and keeps its limits.
            self._transport.set_write_buffer_limits(high=0)
        self._schedule()

    def feed(self, data: bytes) -> bytes:
        """Take nothing: no byte from the client belongs to this."""
        return data

    def pause_response(self) -> None:
        """Wait: the client reads slowly."""
        self._paused = True

    def resume_response(self) -> None:
        """Go on, but not at once: asyncio cannot bear that a transport is closed while it reports that it is empty."""
        self._paused = False
        self._schedule()

    def drain(self) -> None:
        """Do nothing: the connection looks whether the gateway stops when this is done."""

    def abandon(self) -> None:
        """Send no more: the client has left."""
        self._paused = True

    def time_out(self) -> None:
        """Close: nothing moves any more."""
        self._client.abort()

    # The turns.

    def _schedule(self) -> None:
        if not self._scheduled and not self._paused:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._scheduled = False
        self._send_more()

    def _send_more(self) -> None:
        """Send as much as the system takes now; then schedule the next turn, unless the client reads slowly."""
        if self._paused or self._transport.is_closing():
            return
        self._client.renew_deadline()
        if self._offset >= self._source.length:
            self._transport.set_write_buffer_limits()
            self._client.complete(keep=self._keep, unread=self._unread)
            return
        try:
            self._offset += self._sendfile() or self._read_and_write()
        except OSError:
            self._client.abort()
            return
        self._schedule()

    def _sendfile(self) -> int:
        """Have the system copy; returns how much, 0 where it takes nothing or cannot."""
        # The last piece is always read: a file that has changed must not be sent to its end as if it had not.
        source = self._source
        left = min(source.length - self._offset - PIECE_SIZE, MAX_PER_TURN)
        if self._descriptor is None or left <= 0 or self._transport.get_write_buffer_size():
            return 0
        assert isinstance(source, FileSlice)
        if not source.file.is_unchanged():
            raise OSError("the file has changed")
        try:
            return os.sendfile(self._descriptor(), source.file.fileno(), source.offset + self._offset, left)
        except BlockingIOError:
            return 0
        except OSError:
            # This file system cannot; or the client has left, which the transport notices by itself.
            self._descriptor = None
            return 0

    def _read_and_write(self) -> int:
        length = min(self._source.length - self._offset, PIECE_SIZE)
        self._transport.write(self._source.read(self._offset, self._offset + length))
        return length
