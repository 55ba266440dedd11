"""A router between gatekeepers and several masters: to gatekeepers it is a master, to masters a gatekeeper.

"A ZeroMQ router may be employed to shard accounting messages to multiple masters, provided that all messages for the
same domain go to the same master" (smockron.txt, Protocol). It passes messages on unopened and stores nothing: two
routers with the same masters may run side by side and agree. It subscribes to all controls of all masters and publishes
them to the gatekeepers that have subscribed to their domains. No call waits for a master or a gatekeeper.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import zmq
from msgspec import field

from headgate.errors import WireError, fail_if
from headgate.limit.messages import MAX_CONTROL_FRAME, decode_control, domain_of, topic
from headgate.link.batch import BATCH, MASTERS, public_topic, record_count
from headgate.link.connections import BoundCounters, BoundLink, Log, log_warning
from headgate.link.curve import ClientKeys, ServerKeys, keys_of_masters
from headgate.link.master_connection import MasterConnection, Owners
from headgate.link.sockets import NOBLOCK, SNDMORE, LoopDriver, endpoints, has_message, repeat
from headgate.release import NEVER

MasterKeys = ClientKeys | Sequence[ClientKeys | None] | None
"""The keys for all masters, or for each of them."""

_ACCOUNTING_FRAMES: Final = 6
_CONTROL_FRAMES: Final = 4
_MAX_MESSAGES: Final = 256
"""Messages received per socket and turn of the event loop."""
_START_TIMEOUT: Final = 0.5
"""Seconds after the start during which the router waits for all masters, so that no domain moves at once."""


class RouterCounters(BoundCounters):
    """Counters of a router since its start."""

    accounted: int = 0
    """Accounting messages and records received."""
    unrouted: dict[str, int] = field(default_factory=lambda: {"no_master": 0, "malformed": 0, "not_permitted": 0})
    """Messages and records dropped: no master is connected that reads them; the message is malformed; or the list of
    allowed keys does not list the domain for the key of the sender."""
    moved: int = 0
    """Messages and records for another master than the one they belong to, which was not connected."""
    subscriptions: int = 0
    """Subscriptions of gatekeepers received."""


class RouterLink(BoundLink):
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
        keys: ServerKeys | None = None,
        master_keys: MasterKeys = None,
        insecure: bool = False,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
        log: Log = log_warning,
    ) -> None:
        self.counters = RouterCounters()
        """The counters since the start."""
        self.masters: dict[str, MasterConnection] = {}
        """The masters by the endpoints of their accounting."""
        super().__init__(address, self.counters, keys=keys, insecure=insecure, context=context, log=log)
        self._subscribed: set[bytes] = set()
        self._starting_until = time.monotonic() + _START_TIMEOUT
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log = log
        try:
            self.set_masters(masters, master_keys)
        except BaseException:
            self.close()
            raise

    @property
    def is_up(self) -> bool:
        """Whether a master is connected."""
        return any(master.is_up for master in self.masters.values())

    def set_masters(self, addresses: Sequence[str], keys: MasterKeys = None) -> None:
        """Replace the masters; connections to those that stay remain open, with the keys that they have.

        Raises `ConfigurationError` for an invalid address, one that is listed twice, and another number of keys; then
        nothing changes.
        """
        own_keys = dict(zip(addresses, keys_of_masters(keys, len(addresses)), strict=True))
        names = {endpoints(address).accounting: address for address in addresses}
        fail_if(
            len(names) < len(addresses) or not addresses,
            f"invalid masters {','.join(addresses)!r}; list one or more, each of them once",
        )
        for name in names.keys() - self.masters.keys():
            address = names[name]
            self.masters[name] = connection = MasterConnection(
                self.context,
                address,
                counters=self.counters,
                keys=own_keys[address],
                log=self._log,
                changed=self._update,
            )
            connection.control.subscribe(b"")
        self._stop()
        for name in self.masters.keys() - names.keys():
            self.masters[name].close()
        self.masters = {name: self.masters[name] for name in names}
        self._owners = Owners(self.masters)
        for master in self.masters.values():
            master.announce(self._owners.digest + b"d")
        self._update()
        if self._loop is not None:
            self.start(self._loop)

    def owners(self) -> Iterator[tuple[str, str]]:
        """Yield the domains of the accounting received, a limited number, and the address of the master of each."""
        for name, (owner, _) in self._owners.known.items():
            yield domain_of(name), "" if owner is None else owner.address

    # -- event loop ----------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from an event loop until `close`."""
        self._loop = loop
        connections = list(self.masters.values())
        sockets = [socket for connection in connections for socket in connection.sockets]
        self._drivers.append(LoopDriver(loop, self.connections.turn, self.connections.sockets))
        for one in (connection.connections for connection in connections):
            self._drivers.append(LoopDriver(loop, one.turn, one.sockets))
        self._drivers.append(LoopDriver(loop, self._turn_and_timeout, (self.accounting, self.control, *sockets)))

    def close(self) -> None:
        """Leave the loop and close the sockets; messages in transit are dropped. Can be called twice."""
        self._stop()
        while self.masters:
            self.masters.popitem()[1].close()
        super().close()

    def turn(self) -> bool:
        """Handle a limited number of messages of each socket; return whether more are waiting."""
        connections = list(self.masters.values())
        subscribing = [connection for connection in connections if connection.has_subscription]
        for connection in subscribing:
            connection.receive_subscriptions(_MAX_MESSAGES)
        if subscribing or self._starting_until:
            self._update()
        repeat(self._receive_accounting, _MAX_MESSAGES)
        for master in self.masters.values():
            master.receive_controls(_MAX_MESSAGES, partial(self._publish, master))
        self._receive_subscriptions()
        # Sending, and setting an option, may have consumed the event of a message that arrived since.
        sockets = [socket for connection in connections for socket in connection.sockets]
        return any(map(has_message, (self.accounting, self.control, *sockets)))

    def _turn_and_timeout(self) -> float:
        """Run one turn; return the seconds until the next one."""
        more = self.turn()
        if self._starting_until and not more:
            return max(0.001, self._starting_until - time.monotonic())
        return 0.0 if more else NEVER

    def _update(self) -> None:
        """Choose all owners again, and subscribe to accounting as long as a master is connected.

        Without a master, gatekeepers use another router, or count their losses. At the start, wait a moment for all
        masters: the first one that connects would get every domain. "Master subscribes to "" (all messages)"; the
        second subscription offers batches, which all masters have to read.
        """
        self._owners.known.clear()
        connections = list(self.masters.values())
        up = [connection for connection in connections if connection.is_up]
        if len(up) < len(connections) and time.monotonic() < self._starting_until:
            return
        self._starting_until = 0.0
        wanted = {b"", BATCH} if all(connection.reads_batches for connection in up) else {b""}
        if not up:
            wanted = set()
        for prefix in self._subscribed - wanted:
            self.accounting.unsubscribe(prefix)
        for prefix in sorted(wanted - self._subscribed):
            self.accounting.subscribe(prefix)
        self._subscribed = wanted
        if self._drivers:
            self._drivers[-1].wake_soon()  # for the reason at the end of `turn`

    # -- accounting ----------------------------------------------------------------------------------------------

    def _receive_accounting(self) -> None:
        frames, is_permitted, _ = self.receive()
        self._route(frames, is_permitted=is_permitted)

    def _route(self, frames: list[bytes], *, is_permitted: bool) -> None:
        """Pass a message to the owner of its domain, or count why it is dropped."""
        counters, is_batch = self.counters, frames[0].startswith(BATCH)
        try:
            records = record_count(frames)
            name = topic(domain_of(frames[0].removeprefix(BATCH)))  # an original gatekeeper sends it without its NUL
            if not 1 < len(name) <= MAX_CONTROL_FRAME:
                raise WireError(f"invalid topic {name[:40]!r}; expected the name of a domain and one NUL")
        except WireError:
            counters.unrouted["malformed"] += 1
            return
        owner, is_moved = self._owners.find(name)
        counters.accounted += records
        if not is_permitted:
            counters.unrouted["not_permitted"] += records
        elif owner is None or (is_batch and not owner.reads_batches):
            counters.unrouted["no_master"] += records
        elif owner.send(frames[:_ACCOUNTING_FRAMES]):
            owner.sent += records
            counters.moved += records * is_moved
        else:
            owner.dropped += records

    # -- controls ------------------------------------------------------------------------------------------------

    def _publish(self, master: MasterConnection, frames: list[bytes]) -> None:
        """Publish a control of a master to the gatekeepers that have subscribed to it."""
        del frames[_CONTROL_FRAMES:]
        try:
            decode_control(frames)
            if any(len(frame) > MAX_CONTROL_FRAME for frame in (public_topic(frames[0]), *frames[1:])):
                raise WireError("a frame of a control is too long")
        except WireError:
            self.counters.unrouted["malformed"] += 1
            return
        for frame in frames[:-1]:
            self.control.send(frame, SNDMORE)
        self.control.send(frames[-1], NOBLOCK)
        master.controls += 1

    def _receive_subscriptions(self) -> None:
        """Have the masters repeat their holds for new subscriptions, which gatekeepers with equal ones also receive.

        The router is subscribed to everything, so it ignores the end of subscriptions. A repeated subscription is
        passed on and ended at once: the masters see it, and nothing is stored. It is passed on as often as it is
        received, because the masters count who asks for holds of its own. What gatekeepers list does not concern them.
        """
        messages: list[bytes] = []
        repeat(lambda: messages.append(self.receive_subscription()), _MAX_MESSAGES)
        topics = [message[1:] for message in messages if message[:1] == b"\1"]
        self.counters.subscriptions += len(topics)
        for prefix in [prefix for prefix in topics if not prefix.startswith(MASTERS)]:
            for master in self.masters.values():
                master.control.subscribe(prefix)
                master.control.unsubscribe(prefix)
