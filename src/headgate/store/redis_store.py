"""A store in Redis or Valkey, on one server or a cluster, that several masters share.

A master applies every record to its own memory first, and publishes what it computes. This store gets the records
afterwards, in batches, and returns the releases that follow from the records of all masters: those that are later than
what this master has published are published, too. So nothing ever waits for the store. Records are dropped and counted
while the server is down or cannot keep up; those for a server of a cluster wait for another one to take over.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from headgate.config import Address
from headgate.config.store_url import StoreUrl
from headgate.limit.messages import DelayUntil
from headgate.store.connection import Moved, SlotRange, connect, require_extra
from headgate.store.library import DomainFunctions
from headgate.store.server import BATCH_SIZE, Record, StoreCounters, StoreServer, StoreServerPhase

_SLOTS: Final = 16_384
_FLUSH_TIMEOUT: Final = 1.0
_FLUSH_CHECKS: Final = 200
_WATCH_INTERVAL: Final = 1.0
"""Seconds between two questions for the slots while a server of a cluster is down."""


class SharingMaster(Protocol):
    """The master whose records are shared."""

    @property
    def functions(self) -> Mapping[str, DomainFunctions]:
        """The domains that have rules, by name."""
        ...

    def learn(self, domain: str, identifier: bytes, release: float, now: float) -> bool:
        """Adopt a hold; return whether it has to be published."""
        ...

    def hold_batches(self, domain: str, *, now: float, limit: int) -> Iterator[tuple[list[DelayUntil], bool]]:
        """Yield the live holds of a domain in steps."""
        ...


class RedisStore:
    """Shares the records of one master; `attach` it, and `start` it.

    `log` is called with a line when a server goes down and when it is back. `clock` returns seconds since 1970, `draw`
    a random number from 0 to 1. Raises `MissingExtra` without the package redis.
    """

    def __init__(
        self,
        url: StoreUrl,
        *,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        require_extra()
        from redis.crc import key_slot

        self.counters = StoreCounters()
        """The counters since the start."""
        self._url = url
        self._log = log
        self._clock = clock
        self._draw = draw
        self._key_slot = key_slot
        self._servers: dict[Address, StoreServer] = {}
        self._tasks: dict[StoreServer, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._slots: list[StoreServer | None] = []  # empty unless the server is part of a cluster
        self._only: StoreServer | None = None
        self._master: SharingMaster | None = None
        self._publish: Callable[[DelayUntil], None] = lambda _control: None

    @property
    def state(self) -> str:
        """`up`, `down`, `partial` if some servers of a cluster are down, or `connecting`."""
        phases = {server.phase for server in self._servers.values()}
        if len(phases) > 1:
            return "partial"
        return phases.pop().name.lower() if phases else "connecting"

    def attach(self, master: SharingMaster, publish: Callable[[DelayUntil], None]) -> None:
        """Share for this master; `publish` gets the holds that it learns."""
        self._master, self._publish = master, publish

    def start(self) -> None:
        """Connect, in the running event loop; `close` ends that."""
        for address in self._url.addresses:
            self._server(address)
        self._only = self._servers[self._url.addresses[0]]
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """Close all connections; servers that are up have a moment for the records that wait."""
        for _ in range(_FLUSH_CHECKS):
            if all(server.idle or server.phase is not StoreServerPhase.UP for server in self._tasks):
                break
            await asyncio.sleep(_FLUSH_TIMEOUT / _FLUSH_CHECKS)
        tasks = [*self._tasks.values(), *self._ending, *([self._watching] if self._watching else [])]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, functions: DomainFunctions, identifier: bytes, timestamp: float, now: float) -> None:
        """Share a record: a request at `timestamp` whose message arrived at `now`."""
        key = functions.key(identifier)
        server = self._route(key) if self._slots else self._only
        if server is None or not server.put((functions, identifier, key, timestamp, now)):
            self.counters.unshared += 1

    # What servers report.

    def on_releases(self, records: Sequence[Record], releases: Sequence[float]) -> None:
        """Publish the holds of one domain that are later than those of the master."""
        master, functions = self._master, records[0][0]
        name = functions.domain.name
        # The rules may have changed since the records were sent.
        if master is None or master.functions.get(name) is not functions:
            return
        now, learn = self._clock(), master.learn
        for (_functions, identifier, _key, _timestamp, at), release in zip(records, releases, strict=True):
            if release > at and learn(name, identifier, release, now):
                self.counters.learned += 1
                self._publish(DelayUntil(name, identifier, release))

    def on_moved(self, server: StoreServer, moved: Moved, records: Sequence[Record]) -> None:  # noqa: ARG002 - the protocol
        """Send records to the server that has their slot now; the slots of others are asked for."""
        target = self._server(moved.address)
        if not target.put_first(records):
            self.counters.unshared += len(records)

    def on_slots(self, server: StoreServer, slots: Sequence[SlotRange]) -> None:
        """Distribute the slots; stop the servers that have none."""
        self._slots = [None] * _SLOTS if slots else []
        for first, last, address in slots:
            self._slots[first : last + 1] = [self._server(address)] * (last + 1 - first)
        self._only = server
        wanted = {address for _, _, address in slots} or {server.address}
        for address in self._servers.keys() - wanted:
            self._stop(self._servers.pop(address))

    def holds(self, server: StoreServer) -> Iterator[Sequence[Record]]:
        """Yield the live holds of a server in small steps."""
        master = self._master
        for name, functions in list(master.functions.items()) if master is not None else ():
            assert master is not None
            now = self._clock()
            for controls, _ in master.hold_batches(name, now=now, limit=BATCH_SIZE):
                records = [
                    (functions, one.identifier, functions.key(one.identifier), one.release, now) for one in controls
                ]
                yield [record for record in records if self._route(record[2]) is server]

    def _route(self, key: bytes) -> StoreServer | None:
        return self._slots[self._key_slot(key)] if self._slots else self._only

    def _server(self, address: Address) -> StoreServer:
        """Return the server at an address; a new one is started."""
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = StoreServer(
                address,
                self,
                self.counters,
                connect=lambda address: connect(self._url, address),
                slot=self._key_slot,
                log=self._log,
                clock=self._clock,
                draw=self._draw,
            )
            self._tasks[server] = asyncio.get_running_loop().create_task(server.run())
        return server

    def _stop(self, server: StoreServer) -> None:
        task = self._tasks.pop(server)
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        for record in server.abandon():
            target = self._route(record[2])
            if target is None or not target.put(record):
                self.counters.unshared += 1

    async def _watch(self) -> None:
        """Ask for the slots while a server of a cluster is down: another one may have taken its slots over."""
        while True:
            await asyncio.sleep(_WATCH_INTERVAL)
            up = [server for server in self._servers.values() if server.phase is StoreServerPhase.UP]
            if self._slots and up and len(up) < len(self._servers):
                up[0].request_slots()
