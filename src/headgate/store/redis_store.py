"""A store in Redis or Valkey that several masters share: one server, one that Sentinel names, or a cluster.

A master applies every record to its own memory first, and publishes what it computes. This store gets the records
afterwards, in batches, and returns the releases that follow from the records of all masters: those that are later than
what this master has published are published, too. So nothing ever waits for the store. Records are dropped and counted
while it is down or cannot keep up. After each failure the live holds are sent, between the records: the server may have
lost them. Histories are not sent again, and a call that failed is not repeated: a request must not count twice.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from headgate.config.store_url import StoreUrl
from headgate.errors import MissingExtra
from headgate.histogram import Histogram, new_histogram, observe
from headgate.limit.messages import DelayUntil
from headgate.store.master import (
    DIGEST,
    EXTEND,
    PROBE,
    PROBE_KEY,
    RECORD,
    SCRIPT,
    SharedDomain,
    SharedMaster,
    bucket,
    pack_doubles,
    unpack_doubles,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

BATCH_SIZE: Final = 512
"""Records sent at once, and holds; 16 times as many to a cluster, where each bucket has a call of its own."""
MAX_QUEUE: Final = 65_536
"""Records waiting to be sent; further ones are not shared."""
TIMEOUT: Final = 2.0
"""Seconds for a connection, including its handshake, and for each reply."""

_LINGER: Final = 0.002
"""Seconds to wait for more records after the first one."""
_IDLE: Final = 1.0
"""Seconds without records after which the server is checked."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_FLUSH_TIMEOUT: Final = 1.0

Record = tuple[SharedDomain, bytes, float, float]
"""Domain, identifier, and two instants: timestamp and arrival of a request, or the end of a hold and the present."""


class StoreCounters(msgspec.Struct):
    """Counters of a store since its start."""

    records: Annotated[dict[str, int], "outcome"] = msgspec.field(
        default_factory=lambda: {"shared": 0, "unshared": 0, "lost": 0}
    )
    """Records by outcome: shared, unshared (not sent: the store was down, or the queue full), or lost in a call that
    failed."""
    learned: int = 0
    """Holds published that were later than this master's own."""
    holds_sent: int = 0
    """Live holds sent after a connection or a failure."""
    failures: int = 0
    """Times that the store, or a server of it, could not be used."""
    scripts_loaded: int = 0
    """Times that a server did not have the script."""
    seconds: Annotated[Histogram, "le"] = msgspec.field(default_factory=new_histogram)
    """Seconds until the store answered a call, or the call failed."""


class RedisStore:
    """Shares the records of one master; `attach` it, and `start` it.

    `log` is called with a line when the store goes down and when it is back. `clock` returns seconds since 1970, `draw`
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
        try:
            self._client, self._sentinels = _new_client(url)
        except ImportError:
            raise MissingExtra("redis", "a store for several masters") from None
        self.counters = StoreCounters()
        """The counters since the start."""
        self.state = "connecting"
        """`connecting`, `up`, `down`, or `partial` if some servers of a cluster are down."""
        self._name = str(url)
        self._in_cluster = url.kind == "cluster"
        self._batch_size = BATCH_SIZE * 16 if self._in_cluster else BATCH_SIZE
        self._log = log
        self._clock = clock
        self._draw = draw
        self._queue: deque[Record] = deque()
        self._holds: Iterator[Sequence[Record]] = iter(())
        self._wake = asyncio.Event()
        self._is_idle = True
        self._failures = 0
        self._unusable = {""}
        """The servers of a cluster that are down; no server has some slots."""
        self._checked = 0.0
        self._task: asyncio.Task[None] | None = None
        self._master: SharedMaster
        self._publish: Callable[[DelayUntil], None]

    def attach(self, master: SharedMaster, publish: Callable[[DelayUntil], None]) -> None:
        """Share for this master; `publish` gets the holds that it learns."""
        self._master, self._publish = master, publish

    def start(self) -> None:
        """Connect, in the running event loop; `close` ends that."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Close all connections; what waits has a moment to be sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                while self.state == "up" and (self._queue or not self._is_idle):  # noqa: ASYNC110  # no event
                    await asyncio.sleep(_LINGER)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for client in (self._client, *self._sentinels):
            await client.aclose()

    def add(self, domain: SharedDomain, identifier: bytes, timestamp: float, now: float) -> None:
        """Share a record: a request at `timestamp` whose message arrived at `now`."""
        if self.state == "down" or len(self._queue) >= MAX_QUEUE:
            self.counters.records["unshared"] += 1
            return
        self._queue.append((domain, identifier, timestamp, now))
        if len(self._queue) == 1:
            self._wake.set()

    async def _run(self) -> None:
        """Send what is queued, again and again; runs until it is cancelled."""
        from redis.exceptions import RedisError

        while True:
            try:
                await self._probe()
                await self._serve()
            except (RedisError, OSError, ValueError) as error:
                self._on_failure(error)
            with suppress(RedisError, OSError):  # also has a cluster ask for its servers again
                await self._client.aclose()
            pause = min(_FIRST_PAUSE * 2 ** min(self._failures, 10), _LONGEST_PAUSE)
            await asyncio.sleep(pause * (0.5 + self._draw() / 2))

    def _on_failure(self, error: Exception) -> None:
        self.counters.failures += 1
        if self.state in {"up", "connecting"}:
            reason = str(error).rstrip(".") or f"no answer in {TIMEOUT:g} s"
            self._log(f"store {self._name}: {reason}; going on in memory until it answers")
        if self._in_cluster and self.state == "up":
            self.state = "partial"  # until the next check
            return
        self._failures += 1
        self.state = "down"
        self.counters.records["unshared"] += len(self._queue)
        self._queue.clear()

    async def _probe(self) -> None:
        """Check that the store can be used, then send the holds if that is new; raises an error if it cannot."""
        failure = await self._failure_of_servers()
        state = "up" if failure is None else "partial"
        if state != "up":
            if self.state != "partial":
                self._log(f"store {self._name}: {str(failure).rstrip('.')}; going on in memory until it answers")
        elif self.state != "up":
            self._log(f"store {self._name}: connected")
        if self.state != state:
            self._holds = self._live_holds()
        self.state = state
        self._failures = 0
        self._checked = time.monotonic()

    async def _failure_of_servers(self) -> object:
        """Return what is wrong with some servers of a cluster; raises an error if none can be used."""
        if not self._in_cluster:
            (reply,) = await self._execute(PROBE, [[]])
            if not isinstance(reply, bytes):
                raise reply
            return None
        cluster: RedisCluster = self._client  # type: ignore[assignment]  # by the kind of its URL
        await cluster.initialize()
        servers = cluster.get_primaries()
        # By each server's own connection: a failed command of the client closes those to all servers.
        pings = (server.execute_command("PING") for server in servers)
        found = zip(servers, await asyncio.gather(*pings, return_exceptions=True), strict=True)
        failures = {server.name: failure for server, failure in found if failure is not True}
        answering = [server for server in servers if server.name not in failures]
        info = await cluster.execute_command("CLUSTER INFO", target_nodes=answering[0]) if answering else {}
        if info.get("cluster_state") != "ok":
            raise ValueError(next(iter(failures.values()), "the cluster is down"))
        self._unusable = {"", *failures}
        if failures:
            await cluster.aclose()  # so that the next command asks for the servers, of which a replica may be one now
        return next(iter(failures.values()), None)

    def _live_holds(self) -> Iterator[Sequence[Record]]:
        """Yield the live holds of the master in small steps."""
        for name, domain in list(self._master.shared.items()):
            now = self._clock()
            for controls, _ in self._master.hold_batches(name, now=now, limit=BATCH_SIZE):
                yield [(domain, one.identifier, one.release, now) for one in controls]

    async def _serve(self) -> None:
        """Send records and holds in turns, until a call fails."""
        while True:
            self._is_idle = False
            records = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_size))]
            await self._share(RECORD, records)
            holds = next(self._holds, None)
            if holds is not None:
                self.counters.holds_sent += len(holds)
                await self._share(EXTEND, holds)
            elif not self._queue:
                self._is_idle = True
                await self._wait()
            if self.state == "partial" and time.monotonic() > self._checked + _IDLE:
                await self._probe()

    async def _wait(self) -> None:
        """Wait for records, then a moment for more; check the servers if there are none."""
        self._wake.clear()
        try:
            async with asyncio.timeout(_IDLE):
                await self._wake.wait()
        except TimeoutError:
            await self._probe()
        else:
            await asyncio.sleep(_LINGER)

    async def _share(self, operation: bytes, records: Sequence[Record]) -> None:
        """Execute an operation for records on all servers at once; raises the first error after all have ended."""
        servers = [calls for calls in self._group(operation, records) if calls]
        done = await asyncio.gather(*(self._execute(operation, calls) for calls in servers), return_exceptions=True)
        failures = []
        for calls, found in zip(servers, done, strict=True):
            replies = found if isinstance(found, list) else [found] * len(calls)
            for call, reply in zip(calls, replies, strict=True):
                if isinstance(reply, bytes):
                    self._publish_releases(operation, call, unpack_doubles(reply))
                else:
                    failures.append(reply)
                    self.counters.records["lost"] += len(call) if operation == RECORD else 0
        if failures:
            raise failures[0]

    def _group(self, operation: bytes, records: Iterable[Record]) -> Iterable[list[list[Record]]]:
        """Return for each server its calls: the records of one domain and, in a cluster, of one bucket."""
        calls: dict[tuple[SharedDomain, int], list[Record]] = {}
        for record in records:
            group = record[0], bucket(record[1]) if self._in_cluster else 0
            calls.setdefault(group, []).append(record)
        if not self._in_cluster:
            return [list(calls.values())]
        from redis.exceptions import SlotNotCoveredError

        servers: dict[str, list[list[Record]]] = {}
        for call in calls.values():
            name, key = "", call[0][0].key(call[0][1])
            with suppress(SlotNotCoveredError):
                name = self._client.get_node_from_key(key).name  # type: ignore[union-attr,arg-type]  # bytes
            if name not in self._unusable:
                servers.setdefault(name, []).append(call)
            elif operation == RECORD:
                self.counters.records["unshared"] += len(call)
        return servers.values()

    async def _execute(self, operation: bytes, calls: list[list[Record]]) -> list[Any]:
        """Execute the calls of one server; return the reply, or the error, of each."""
        from redis.exceptions import NoScriptError

        replies = await self._send(operation, calls)
        missing = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            self.counters.scripts_loaded += 1
            await self._client.script_load(SCRIPT)
            again = await self._send(operation, [calls[index] for index in missing])
            for index, reply in zip(missing, again, strict=True):
                replies[index] = reply
        return replies

    async def _send(self, operation: bytes, calls: list[list[Record]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            if call:
                keys = [domain.key(identifier) for domain, identifier, _, _ in call]
                records = pack_doubles([instant for _, _, *instants in call for instant in instants])
                words = (*keys, operation, *call[0][0].arguments, records)
            else:
                keys, words = [PROBE_KEY], (PROBE_KEY, operation)
            pipeline.execute_command("EVALSHA", DIGEST, len(keys), *words)
        began = time.monotonic()
        try:
            return await pipeline.execute(raise_on_error=False)
        finally:
            observe(self.counters.seconds, time.monotonic() - began)

    def _publish_releases(self, operation: bytes, records: Sequence[Record], releases: Sequence[float]) -> None:
        """Publish the holds of one domain that are later than those of the master."""
        if len(releases) != len(records):
            raise ValueError(f"unexpected reply with {len(releases)} releases for {len(records)} records")
        if operation == RECORD:
            self.counters.records["shared"] += len(releases)
        domain, now = records[0][0], self._clock()
        name = domain.domain.name
        # The rules may have changed since the records were sent.
        if self._master.shared.get(name) is not domain:
            return
        for (_, identifier, _, at), release in zip(records, releases, strict=True):
            if release > at and self._master.learn(name, identifier, release, now):
                self.counters.learned += 1
                self._publish(DelayUntil(name, identifier, release))


def _new_client(url: StoreUrl) -> tuple["Redis | RedisCluster", "list[Redis]"]:
    """Return a client that repeats nothing, and those of the Sentinels that it asks."""
    from redis.asyncio import Redis, RedisCluster, Sentinel
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    common: dict[str, Any] = {
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,  # HELLO needs another permission
    }
    if url.tls:
        common |= {"ssl": True, "ssl_check_hostname": True, **dict(url.options)}
    account: dict[str, Any] = {"username": url.username or None, "password": url.password or None}
    if url.kind == "cluster":
        nodes = [ClusterNode(*address) for address in url.addresses]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **account, **common), []
    if url.kind == "sentinel":
        hosts = [tuple(address) for address in url.addresses]
        sentinel = Sentinel(hosts, sentinel_kwargs=common, **common)  # type: ignore[no-untyped-call]  # not annotated
        client: Redis = sentinel.master_for(url.service, db=url.database, **account)
        return client, sentinel.sentinels
    ((host, port),) = url.addresses
    return Redis(host=host, port=port, db=url.database, **account, **common), []
