"""Connections on which nginx asks: one head after another, each answered before the next. They are bounded.

Any process that may write to the socket can connect. The number of connections, the size of a head, the time in which
it must be complete and the unread answers are limited; a connection that exceeds a limit is closed.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

MAX_HEAD_SIZE: Final = 65_536
"""Bytes of a head; nginx accepts at most 32 KiB from its clients, unless large_client_header_buffers is larger."""

HEAD_TIMEOUT: Final = 10.0
"""Seconds from the first byte of a head to its end; nginx sends all of it at once."""

_END: Final = b"\r\n\r\n"


class _Closable(Protocol):
    def abort(self) -> None:
        """Close the connection at once."""
        ...


class ConnectionTable:
    """The open connections, at most `most`: for another one, that which has been idle for the longest is closed."""

    def __init__(self, most: int) -> None:
        self.opened = 0
        """Connections since the start."""
        self.dropped = 0
        """Connections closed for others, or because a request was malformed or late."""
        self._most = most
        self._idle: dict[_Closable, None] = {}
        self._waiting: dict[_Closable, None] = {}

    def __len__(self) -> int:
        return len(self._idle) + len(self._waiting)

    def add(self, connection: _Closable) -> None:
        """Add a connection, which is idle; if all others are waiting for an answer, it is closed itself."""
        self.opened += 1
        self._idle[connection] = None
        if len(self) > self._most:
            self.drop(next(iter(self._idle)))

    def use(self, connection: _Closable) -> None:
        """Note that an idle connection was used just now."""
        del self._idle[connection]
        self._idle[connection] = None

    def set_waiting(self, connection: _Closable) -> None:
        """Keep an idle connection open: its client waits for an answer."""
        del self._idle[connection]
        self._waiting[connection] = None

    def set_idle(self, connection: _Closable) -> None:
        """Note that a waiting connection has its answer."""
        del self._waiting[connection]
        self._idle[connection] = None

    def remove(self, connection: _Closable) -> None:
        """Remove a connection that is closed; does nothing if it is not in the table."""
        self._idle.pop(connection, None)
        self._waiting.pop(connection, None)

    def drop(self, connection: _Closable) -> None:
        """Close and remove a connection, and count it."""
        self.dropped += 1
        self.remove(connection)
        connection.abort()

    def close(self) -> None:
        """Close all connections."""
        for connection in [*self._idle, *self._waiting]:
            self.remove(connection)
            connection.abort()


class Connection(asyncio.Protocol):
    """One connection. `answer` is called with each head, and returns the answer, or None and calls `send` later."""

    def __init__(self, table: ConnectionTable, answer: Callable[[bytes, "Connection"], bytes | None]) -> None:
        self.on_lost: Callable[[], None] | None = None
        """Called if the connection is lost before `send`; set by an `answer` that returns None."""
        self._table = table
        self._answer = answer
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None
        self._is_waiting = False
        self._is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enter the table."""
        self._transport = cast("asyncio.Transport", transport)
        self._table.add(self)

    def data_received(self, data: bytes) -> None:
        """Answer a head once it is complete. Nothing may follow it: nginx waits for the answer."""
        if not self._is_open:
            return
        if self._received:
            data = self._received + data
        end = data.find(_END)
        if end < 0:
            self._wait_for_more(data)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._received = None, b""
        if end + len(_END) < len(data) or self._is_waiting or end > MAX_HEAD_SIZE:
            self._table.drop(self)
            return
        answer = self._answer(data, self)
        if answer is None:
            self._is_waiting = True
            self._table.set_waiting(self)
        else:
            self._table.use(self)
            self._transport.write(answer)

    def _wait_for_more(self, data: bytes) -> None:
        if len(data) > MAX_HEAD_SIZE or self._is_waiting:
            self._table.drop(self)
            return
        self._received = data
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT, self._table.drop, self)

    def send(self, answer: bytes) -> None:
        """Send the answer to a head for which `answer` returned None."""
        self._is_waiting, self.on_lost = False, None
        if self._is_open:
            self._table.set_idle(self)
            self._transport.write(answer)

    def pause_writing(self) -> None:
        """Close the connection: its peer asks without reading the answers."""
        self._table.drop(self)

    def abort(self) -> None:
        """Close the connection at once; the event loop reports that later, by `connection_lost`."""
        self._is_open = False
        self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        """Leave the table, and report that an answer is not needed."""
        self._table.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.on_lost is not None:
            self.on_lost()
