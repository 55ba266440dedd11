"""A router between gatekeepers and several masters: to gatekeepers it is a master, to masters a gatekeeper.

"A ZeroMQ router may be employed to shard accounting messages to multiple masters, provided that all messages for the
same domain go to the same master" (smockron.txt, Protocol). Its state is its connections: two routers with the same
masters may run side by side and agree. It subscribes to all controls of all masters and publishes them to the
gatekeepers that have subscribed to their domains. No call waits for a master or a gatekeeper.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Final

import zmq

from headgate.errors import ConfigurationError, WireError
from headgate.limit.messages import MAX_CONTROL_FRAME, decode_control
from headgate.link.accounting_router import AccountingRouter, RouterCounters
from headgate.link.batch import BATCH
from headgate.link.connections import BoundConnections, Log, log_warning
from headgate.link.curve import ClientKeys, ServerKeys, keys_of_masters
from headgate.link.heartbeats import Heartbeats
from headgate.link.loop_driver import LoopDriver
from headgate.link.master_connection import MasterConnection
from headgate.link.message_reader import MessageReader
from headgate.link.routing_table import MasterTraffic, RoutedMaster, RoutingTable, Shard
from headgate.link.sockets import (
    NOBLOCK,
    SNDMORE,
    bind_pair,
    close_sockets,
    endpoints,
    has_message,
    open_socket,
)
from headgate.link.subscriptions import Subscriptions
from headgate.release import NEVER

MasterKeys = ClientKeys | Sequence[ClientKeys | None] | None
"""The keys for all masters, or for each of them."""

_QUEUE = 10_000
_MASTER_QUEUE = 1_000
"""Messages in the queue of each master."""
_MAX_ACCOUNTING_SIZE = 256 * 1024
_MAX_SUBSCRIPTION_SIZE = 1_024
_MAX_FRAMES = 64
_CONTROL_FRAMES = 4
_MAX_MESSAGES = 256
"""Messages or records received per socket and turn of the event loop."""
_START_TIMEOUT: Final = 0.5
"""Seconds after the start during which the router waits for all masters, so that no domain moves at once."""


class RouterLink:
    """The sockets of a router, bound and connected when the link is created.

    `address` names the accounting port (see `headgate.link.sockets.endpoints`); port 0 lets the system choose, and
    `endpoints` has the result. `masters` are the addresses of the masters, which need not be running yet. Call `start`
    (with an event loop). An ``inproc://`` address needs the `context` of its peers. With `keys`, gatekeepers must have
    one of the allowed keys; without, an address beyond loopback needs `insecure`. `master_keys` are those for all
    masters or for each of them in order. `log` receives lines about failed handshakes. Raises `ConfigurationError` for
    an invalid address of a master, `LinkError` if the router's own cannot be bound.
    """

    def __init__(
        self,
        address: str,
        masters: Sequence[str],
        *,
        shard: Shard = "domain",
        keys: ServerKeys | None = None,
        master_keys: MasterKeys = None,
        insecure: bool = False,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
        log: Log = log_warning,
    ) -> None:
        self.counters = RouterCounters()
        """The counters since the start."""
        self.masters: dict[str, RoutedMaster] = {}
        """The masters by the endpoints of their accounting."""
        self._own_context = context is None
        self._context = zmq.Context() if context is None else context
        self._accounting = open_socket(self._context, zmq.SUB, queue=_QUEUE, largest=_MAX_ACCOUNTING_SIZE)
        self._control = open_socket(self._context, zmq.XPUB, queue=_QUEUE, largest=_MAX_SUBSCRIPTION_SIZE)
        # Report repeated subscriptions, too: each subscriber needs the holds in force.
        self._control.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._reader = MessageReader(self._accounting, _MAX_FRAMES)
        self._subscribed: list[bytes] = []
        self._subscribe_at = time.monotonic() + _START_TIMEOUT
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: LoopDriver | None = None
        self._watchers: dict[str, LoopDriver] = {}
        self._log = log
        self._connections = BoundConnections((self._accounting, self._control), self.counters, log)
        try:
            self.set_masters(masters, shard, master_keys)
            if keys is not None:
                self._connections.authenticate(keys.allowed)
            self.endpoints = bind_pair(self._accounting, self._control, address, keys, insecure=insecure)
            """The endpoints of the two sockets that gatekeepers connect to."""
        except BaseException:
            self.close()
            raise

    @property
    def is_up(self) -> bool:
        """Whether a master is connected."""
        return any(master.connection.is_up for master in self.masters.values())

    @property
    def shard(self) -> Shard:
        """What has one master."""
        return self._table.shard

    def set_masters(self, addresses: Sequence[str], shard: Shard, keys: MasterKeys = None) -> None:
        """Replace the masters; connections to those that stay remain open, with the keys that they have.

        Raises `ConfigurationError` for an invalid address, one that is listed twice, and another number of keys; then
        nothing changes.
        """
        own_keys = keys_of_masters(keys, len(addresses))
        names = {endpoints(address).accounting: address for address in addresses}
        if len(names) < len(addresses) or not addresses:
            raise ConfigurationError(f"invalid masters {','.join(addresses)!r}; list one or more, each of them once")
        added: dict[str, RoutedMaster] = {}
        try:
            for (name, address), one in zip(names.items(), own_keys, strict=True):
                if name not in self.masters:
                    added[name] = self._connect(address, one)
        except BaseException:
            for master in added.values():
                master.connection.close()
            raise
        for name in self.masters.keys() - names.keys():
            self._close_connection(name)
        self.masters = {name: added.get(name) or self.masters[name] for name in names}
        self._table = RoutingTable(self.masters, shard)
        self._router = AccountingRouter(self._table, self.counters)
        if self._driver is not None:
            self._watch()
            self._driver.wake()

    def _connect(self, address: str, keys: ClientKeys | None) -> RoutedMaster:
        connection = MasterConnection(
            self._context,
            address,
            Subscriptions((), "auto"),
            queue=_MASTER_QUEUE,
            heartbeats=Heartbeats(),
            counters=self.counters,
            keys=keys,
            log=self._log,
            changed=self._on_connection_change,
        )
        connection.subscribe(b"")
        return RoutedMaster(connection, MasterTraffic())

    def set_allowed_keys(self, allowed: frozenset[bytes]) -> None:
        """Replace the public keys that may connect; connections that exist stay. The link must have keys."""
        self._connections.authenticate(allowed)

    def owners(self) -> Iterator[tuple[str, str]]:
        """Yield the domains of the accounting received, a limited number, and the name of the master of each.

        The name is empty if no master reads the domain, and if its identifiers have masters of their own.
        """
        return self._table.owners()

    # -- event loop ----------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from an event loop until `close`."""
        self._loop = loop
        self._watchers[""] = LoopDriver(loop, self._connections.turn, self._connections.sockets)
        self._driver = LoopDriver(loop, self._turn_and_timeout, (self._accounting, self._control))
        self._watch()
        self._driver.wake()

    def _watch(self) -> None:
        """Watch the sockets of masters that are not watched yet."""
        assert self._loop is not None
        assert self._driver is not None
        for name in self.masters.keys() - self._watchers.keys():
            connection = self.masters[name].connection
            self._driver.watch(connection.sockets)
            self._watchers[name] = LoopDriver(self._loop, connection.connections.turn, connection.connections.sockets)

    def _close_connection(self, name: str) -> None:
        connection = self.masters[name].connection
        if self._driver is not None:
            self._driver.unwatch(connection.sockets)
            self._watchers.pop(name).close()
        connection.close()

    def close(self) -> None:
        """Leave the loop and close the sockets; messages in transit are dropped. Can be called twice."""
        if self._accounting.closed:
            return
        for driver in (self._driver, *self._watchers.values()):
            if driver is not None:
                driver.close()
        for master in self.masters.values():
            master.connection.close()
        self._connections.close()
        close_sockets((self._accounting, self._control))
        if self._own_context:
            self._context.term()

    def turn(self) -> bool:
        """Handle a limited number of messages of each socket; return whether more are waiting."""
        self._receive_masters()
        self._receive_accounting()
        for master in self.masters.values():
            self._receive_controls(master)
        self._receive_subscriptions()
        # Sending, and setting an option, may have consumed the event of a message that arrived since.
        sockets = [socket for master in self.masters.values() for socket in master.connection.sockets]
        return any(map(has_message, (self._accounting, self._control, *sockets)))

    def _turn_and_timeout(self) -> float:
        """Run one turn; return the seconds until the next one."""
        return 0.0 if self.turn() else max(0.0, self._subscribe_at - time.monotonic())

    # -- accounting ----------------------------------------------------------------------------------------------

    def _receive_masters(self) -> None:
        """Receive the subscriptions of masters: which are connected, and what they read."""
        is_changed = False
        for master in self.masters.values():
            connection = master.connection
            if connection.has_subscription:
                connection.receive_subscriptions(_MAX_MESSAGES)
                is_changed = True
        if is_changed:
            self._update()
        elif self._subscribe_at < NEVER:
            self._subscribe()

    def _on_connection_change(self) -> None:
        """Choose all routes again; the next turn follows at once, for the reason at the end of `turn`."""
        self._update()
        if self._driver is not None:
            self._driver.wake_soon()

    def _update(self) -> None:
        """Choose all routes again: the connection or the subscriptions of a master have changed."""
        self._table.update()
        self._subscribe()

    def _subscribe(self) -> None:
        """Subscribe to accounting as long as a master is connected: without one, gatekeepers count their losses.

        At the start, wait a moment for all masters: the first one that connects would get every domain. Masters without
        a history are announced to the gatekeepers, as they announce themselves.
        """
        connections = [master.connection for master in self.masters.values()]
        if self._subscribe_at < NEVER:
            if not all(one.is_up for one in connections) and time.monotonic() < self._subscribe_at:
                return
            self._subscribe_at = NEVER
        readers = [master for master in self.masters.values() if master.connection.subscriptions]
        # A master is announced once it can own domains: what it gets before that would be dropped.
        owners = [master for master in readers if master.connection.is_up] or readers
        announced = {prefix: one for one in owners for prefix in one.connection.subscriptions.announcements}
        self._router.announced = announced
        # "Master subscribes to "" (all messages)"; the second subscription offers batches.
        wanted = [b"", BATCH, *announced] if readers else []
        for prefix in self._subscribed:
            if prefix not in wanted:
                self._accounting.unsubscribe(prefix)
        for prefix in wanted:
            if prefix not in self._subscribed:
                self._accounting.subscribe(prefix)
        self._subscribed = wanted

    def _receive_accounting(self) -> None:
        records = 0
        try:
            while records < _MAX_MESSAGES:
                frames = self._reader.read()
                records += self._router.handle(frames) if frames else _MAX_MESSAGES
        except zmq.Again:
            pass
        self._router.flush()

    # -- controls ------------------------------------------------------------------------------------------------

    def _receive_controls(self, master: RoutedMaster) -> None:
        """Publish the controls of a master to the gatekeepers that have subscribed to them."""

        def publish(frames: list[bytes]) -> None:
            if self._publish(frames):
                master.traffic.controls += 1
            else:
                self.counters.malformed += 1

        master.connection.receive_controls(_MAX_MESSAGES, publish)

    def _publish(self, frames: Sequence[bytes]) -> bool:
        """Publish a control; return whether it is valid."""
        try:
            decode_control(frames)
        except WireError:
            return False
        if any(len(frame) > MAX_CONTROL_FRAME for frame in frames[:_CONTROL_FRAMES]):
            return False
        send = self._control.send
        for frame in frames[: _CONTROL_FRAMES - 1]:
            send(frame, SNDMORE)
        send(frames[_CONTROL_FRAMES - 1], NOBLOCK)
        return True

    def _receive_subscriptions(self) -> None:
        """Have the masters repeat their holds for new subscriptions, which gatekeepers with equal ones also receive.

        The router is subscribed to everything, so it ignores the end of subscriptions. A repeated
        subscription is passed on and ended at once: the masters see it, and nothing is stored.
        """
        topics: set[bytes] = set()
        try:
            for _ in range(_MAX_MESSAGES):
                message = self._control.recv(NOBLOCK)
                if message[:1] == b"\1":
                    self.counters.subscriptions += 1
                    topics.add(message[1:])
        except zmq.Again:
            pass
        for prefix in topics:
            for master in self.masters.values():
                master.connection.subscribe(prefix)
                master.connection.unsubscribe(prefix)
