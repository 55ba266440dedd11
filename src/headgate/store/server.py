"""One server of a store: a bounded queue of records, and the task that sends them in batches.

A server is connecting, up or down. While it is down, the task tries to connect again after pauses that grow to two
seconds. Nothing is queued meanwhile, except in a cluster: there another server may take over, and gets what waits,
unless it is too old. After each connection the live holds are sent, in small steps between the records: the server may
have lost them. Histories are not sent again. A call that was sent and not answered is lost: nothing is sent twice,
unless the server says that it did not execute it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

import msgspec

from headgate.config import Address
from headgate.store import library
from headgate.store.connection import (
    ClusterDown,
    Command,
    Migrating,
    Moved,
    NotLoaded,
    SlotRange,
    StoreConnection,
    StoreError,
)
from headgate.store.library import DomainFunctions, unpack_doubles

BATCH_SIZE: Final = 512
"""Records sent at once, and holds."""

MAX_QUEUE: Final = 65_536
"""Records waiting to be sent; further ones are not shared."""

MAX_WAIT: Final = 30.0
"""Seconds that records wait for another server of a cluster to take over, which takes little longer than the timeout of
its nodes, 15 s by default. Older ones would extend holds for a load that has ended."""

_WINDOW: Final = 2
"""Batches sent and not answered: the next one is prepared while the server works."""
_LINGER: Final = 0.002
"""Seconds to wait for more records after the first one."""
_IDLE: Final = 1.0
"""Seconds without records after which the connection is checked."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0

Record = tuple[DomainFunctions, bytes, bytes, float, float]
"""Domain, identifier, key, and two instants: timestamp and arrival of a request, or the end of a hold and the present
time."""


class StoreCounters(msgspec.Struct):
    """Counters of a store since its start."""

    shared: int = 0
    """Records that the store has answered."""
    unshared: int = 0
    """Records that were not sent: the server was down, or its queue full."""
    lost: int = 0
    """Records sent and not answered, because the connection failed."""
    learned: int = 0
    """Holds published that were later than this master's own."""
    holds_sent: int = 0
    """Live holds sent after a connection."""
    failures: int = 0
    """Connections that failed, or could not be opened."""
    libraries_loaded: int = 0
    """Times that a server did not have the function library."""


class StoreServerPhase(Enum):
    """What a server can do."""

    CONNECTING = auto()
    """It has not been reached yet; records are queued."""
    UP = auto()
    DOWN = auto()


_DOWN = StoreServerPhase.DOWN  # an attribute of an Enum is slow to read


class StoreServerHandler(Protocol):
    """Handles what a server reports, and gives the live holds of a server."""

    def on_releases(self, records: Sequence[Record], releases: Sequence[float]) -> None:
        """Handle the releases of records of one domain, or its holds in force."""

    def on_moved(self, server: "StoreServer", moved: Moved, records: Sequence[Record]) -> None:
        """Send records to another server."""

    def on_slots(self, server: "StoreServer", slots: Sequence[SlotRange]) -> None:
        """Handle the distribution of the slots of a cluster; empty if the server is not part of one."""

    def holds(self, server: "StoreServer") -> Iterator[Sequence[Record]]:
        """Yield the live holds of this server in lists of at most `BATCH_SIZE`, which may be empty."""
        ...


class _Call(NamedTuple):
    """One call of a function for records of one domain and, in a cluster, of one slot."""

    function: bytes
    records: list[Record]

    def command(self) -> Command:
        functions = self.records[0][0]
        return (
            b"FCALL",
            self.function,
            b"%d" % len(self.records),
            *[record[2] for record in self.records],
            *functions.arguments,
            functions.pack_records(self.function, [instant for record in self.records for instant in record[3:]]),
        )


class StoreServer:
    """A server at `address`; `connect` opens a connection to it, `draw` returns a random number from 0 to 1."""

    def __init__(
        self,
        address: Address,
        handler: StoreServerHandler,
        counters: StoreCounters,
        *,
        connect: Callable[[Address], Awaitable[StoreConnection]],
        slot: Callable[[bytes], int],
        log: Callable[[str], None],
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self.address = address
        """Where it listens."""
        self.phase = StoreServerPhase.CONNECTING
        """What it can do."""
        self._handler = handler
        self._counters = counters
        self._connect = connect
        self._slot = slot
        self._log = log
        self._clock = clock
        self._draw = draw
        self._in_cluster = False
        self._queue: deque[Record] = deque()
        self._in_flight: deque[deque[_Call]] = deque()
        self._to_retry: list[Record] = []
        self._holds: Iterator[Sequence[Record]] = iter(())
        self._holds_next = False
        self._wants_slots = False
        self._refusal = ""
        self._wake = asyncio.Event()
        self._failures = 0

    def put(self, record: Record) -> bool:
        """Queue a record; return False if it cannot be sent."""
        queue = self._queue
        if (self.phase is _DOWN and not self._in_cluster) or len(queue) >= MAX_QUEUE:
            return False
        queue.append(record)
        if len(queue) == 1:  # otherwise the task is not waiting for records
            self._wake.set()
        return True

    def put_first(self, records: Sequence[Record]) -> bool:
        """Queue records that another server did not execute before all others; return False if they cannot be sent."""
        is_closed = self.phase is StoreServerPhase.DOWN and not self._in_cluster
        if is_closed or len(self._queue) + len(records) > MAX_QUEUE:
            return False
        self._queue.extendleft(reversed(records))
        self._wake.set()
        return True

    @property
    def idle(self) -> bool:
        """Whether no record waits to be sent or answered."""
        return not (self._queue or self._in_flight or self._to_retry)

    def abandon(self) -> list[Record]:
        """Forget all records; return those that were not executed, and count those that may have been as lost."""
        self._counters.lost += sum(
            len(call.records) for calls in self._in_flight for call in calls if call.function == library.RECORD
        )
        self._drop_old()
        unsent = [*self._to_retry, *self._queue]
        for waiting in (self._queue, self._in_flight, self._to_retry):
            waiting.clear()
        return unsent

    def _drop_old(self) -> None:
        """Drop the records that have waited for longer than `MAX_WAIT`."""
        oldest = self._clock() - MAX_WAIT
        while self._queue and self._queue[0][4] < oldest:
            self._queue.popleft()
            self._counters.unshared += 1

    def request_slots(self) -> None:
        """Ask this server soon for the distribution of the slots."""
        self._wants_slots = True
        self._wake.set()

    async def run(self) -> None:
        """Connect and send, again and again; runs until it is cancelled."""
        while True:
            connection = None
            try:
                connection = await self._open()
                await self._serve(connection)
            except StoreError as error:
                self._on_failure(str(error))
            except Exception as error:
                self._on_failure(f"internal error: {type(error).__name__}: {error}")
            finally:
                if connection is not None:
                    await connection.close()
            pause = min(_FIRST_PAUSE * 2 ** min(self._failures, 10), _LONGEST_PAUSE)
            await asyncio.sleep(pause * (0.5 + self._draw() / 2))

    async def _open(self) -> StoreConnection:
        connection = await self._connect(self.address)
        try:
            slots = await connection.slots()
            self._in_cluster = bool(slots)
            self._handler.on_slots(self, slots)
            self._counters.libraries_loaded += await connection.prepare()
        except BaseException:
            await connection.close()
            raise
        if self.phase is not StoreServerPhase.UP:
            self._log(f"store {self.address}: connected")
        self.phase = StoreServerPhase.UP
        self._drop_old()
        self._holds = self._handler.holds(self)
        return connection

    async def _serve(self, connection: StoreConnection) -> None:
        """Send batches, and receive their replies in the same order."""
        in_flight = self._in_flight
        while True:
            must_drain = self._wants_slots or bool(self._to_retry or self._refusal)
            batch = None if must_drain or len(in_flight) >= _WINDOW else self._next_batch()
            if batch:
                in_flight.append(deque(batch))
                await connection.send([call.command() for call in batch])
            elif in_flight:
                calls = in_flight[0]
                while calls:
                    await self._receive(connection, calls[0])
                    calls.popleft()
                in_flight.popleft()
                self._failures = 0
            elif self._refusal:
                raise StoreError(self._refusal)
            elif must_drain:
                await self._ask(connection)
            elif batch is None:
                await self._wait(connection)
            else:
                await asyncio.sleep(0)  # a step through the holds found none of this server

    def _next_batch(self) -> list[_Call] | None:
        """Return the next calls, of records and holds in turns; None if there is nothing left to send."""
        self._holds_next = not self._holds_next
        if self._queue and not self._holds_next:
            return self._group(
                library.RECORD, [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_SIZE))]
            )
        holds = next(self._holds, None)
        if holds is not None:
            self._counters.holds_sent += len(holds)
            return self._group(library.EXTEND, holds)
        if self._queue:
            return self._next_batch()
        return None

    def _group(self, function: bytes, records: Sequence[Record]) -> list[_Call]:
        """Group records by domain and, in a cluster, by slot; the order within a key stays."""
        groups: dict[tuple[DomainFunctions, int], _Call] = {}
        for record in records:
            group = (record[0], self._slot(record[2]) if self._in_cluster else 0)
            call = groups.get(group)
            if call is None:
                groups[group] = _Call(function, [record])
            else:
                call.records.append(record)
        return list(groups.values())

    async def _receive(self, connection: StoreConnection, call: _Call) -> None:
        """Receive the reply to one call."""
        reply = await connection.receive()
        if not isinstance(reply, bytes):
            self._on_refusal(reply, call.records if call.function == library.RECORD else [])
            return
        releases = unpack_doubles(reply)
        if len(releases) != len(call.records):
            raise StoreError(f"unexpected reply of {len(reply)} bytes to {len(call.records)} records")
        if call.function == library.RECORD:
            self._counters.shared += len(releases)
        self._handler.on_releases(call.records, releases)

    def _on_refusal(self, reply: ClusterDown | Moved | Migrating | NotLoaded, records: list[Record]) -> None:
        """Handle a reply that says why a call was not executed; holds are not sent again."""
        if isinstance(reply, Moved):
            self._wants_slots = True
            if records:
                self._handler.on_moved(self, reply, records)
        elif isinstance(reply, Migrating):
            self._counters.unshared += len(records)
        else:
            self._to_retry += records
        if isinstance(reply, ClusterDown):
            self._refusal = reply.reason

    async def _ask(self, connection: StoreConnection) -> None:
        """Ask for the slots, or load the library and queue the records again that needed it."""
        if self._wants_slots:
            self._wants_slots = False
            self._handler.on_slots(self, await connection.slots())
        if self._to_retry:
            await connection.load()
            self._counters.libraries_loaded += 1
            self._queue.extendleft(reversed(self._to_retry))
            self._to_retry = []

    async def _wait(self, connection: StoreConnection) -> None:
        """Wait for records, then a moment for more; check the connection if there are none."""
        self._wake.clear()
        try:
            async with asyncio.timeout(_IDLE):
                await self._wake.wait()
        except TimeoutError:
            self._counters.libraries_loaded += await connection.prepare()
        else:
            if len(self._queue) < BATCH_SIZE:
                await asyncio.sleep(_LINGER)

    def _on_failure(self, reason: str) -> None:
        self._counters.failures += 1
        self._failures += 1
        self._refusal = ""
        waiting = self.abandon()
        if self._in_cluster:
            self._queue.extend(waiting)
        else:
            self._counters.unshared += len(waiting)
        if self.phase is not StoreServerPhase.DOWN:
            self._log(f"store {self.address}: {reason.rstrip('.')}; going on in memory until it answers")
        self.phase = StoreServerPhase.DOWN
