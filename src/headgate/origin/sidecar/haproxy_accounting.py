"""The socket to which HAProxy reports requests while it processes them (`haproxy.lua`).

A line has three words: when the request was received, in milliseconds since 1970; the milliseconds that remained of a
hold, which are positive if HAProxy has rejected the request; and the key of the identifier. A line `dropped N` says
that HAProxy could not send N lines. Any process that may write to the socket can connect: malformed lines are counted
and dropped.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Final, cast

from msgspec import Struct

from headgate.limit import Accounting
from headgate.limit.messages import short_identifier
from headgate.origin.sidecar.haproxy_map import decode_key
from headgate.release import Status

ACCOUNTING_SUFFIX: Final = ".accounting"
"""What follows the path of the runtime socket of HAProxy in the path of this socket."""
MAX_CONNECTIONS: Final = 1_024
"""Connections of HAProxy: one for each of its threads. A further one replaces that which has been idle for longest."""
MAX_LINE_SIZE: Final = 4_096
"""Bytes of a line; a connection with a longer one is closed."""

_LINE: Final = re.compile(rb"([0-9]{1,15}) (-?[0-9]{1,15}) ([A-Za-z0-9._~%-]+)")
_DROPPED: Final = re.compile(rb"dropped ([0-9]{1,15})")


class AccountingCounters(Struct):
    """Totals of what HAProxy has reported since the start."""

    connections: int = 0
    """Connections of HAProxy; it opens one when requests come, and closes it half a second after the last."""
    dropped_connections: int = 0
    """Connections closed because there were too many."""
    malformed: int = 0
    """Lines that are malformed or too long."""
    haproxy_dropped: int = 0
    """Requests that HAProxy has not reported because the sidecar was not running, or was too slow."""


class AccountingReader:
    """Splits what connections receive into lines, and passes each verdict to `report`."""

    def __init__(self, domain: str, report: Callable[[Accounting, float], None], clock: Callable[[], float]) -> None:
        self.counters = AccountingCounters()
        """Totals since the start."""
        self.connections: dict[asyncio.Transport, None] = {}
        """The open connections; the one that has been idle for longest is the first."""
        self._domain = domain
        self._report = report
        self._clock = clock

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Connection(self)

    def read(self, lines: list[bytes]) -> None:
        """Process complete lines."""
        now = self._clock()
        for line in lines:
            found = _LINE.fullmatch(line)
            if found is None:
                self._read_other(line)
                continue
            received, rest = int(found[1]) / 1_000.0, int(found[2])
            status = Status.REJECTED if rest > 0 else Status.ACCEPTED
            identifier = short_identifier(decode_key(found[3]))
            release = received + max(0, rest) / 1_000.0
            self._report(Accounting(self._domain, status, identifier, received, release), now)

    def _read_other(self, line: bytes) -> None:
        dropped = _DROPPED.fullmatch(line)
        if dropped is None:
            self.counters.malformed += 1
        else:
            self.counters.haproxy_dropped += int(dropped[1])

    def close(self) -> None:
        """Close all connections."""
        for transport in list(self.connections):
            transport.abort()


class _Connection(asyncio.Protocol):
    """One connection of HAProxy."""

    def __init__(self, reader: AccountingReader) -> None:
        self._reader = reader
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked: the transports of uvloop are of no class of asyncio.
        self._transport = transport = cast(asyncio.Transport, transport)
        if len(self._reader.connections) >= MAX_CONNECTIONS:
            self._reader.counters.dropped_connections += 1
            idle = next(iter(self._reader.connections))
            del self._reader.connections[idle]
            idle.abort()
        self._reader.counters.connections += 1
        self._reader.connections[transport] = None

    def data_received(self, data: bytes) -> None:
        if self._reader.connections.pop(self._transport, 0) is None:  # open, and now the one that was active last
            self._reader.connections[self._transport] = None
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._reader.read(lines)
        if len(self._rest) > MAX_LINE_SIZE:
            self._reader.counters.malformed += 1
            self._rest = b""
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._reader.connections.pop(self._transport, None)
