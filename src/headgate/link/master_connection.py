"""The two sockets that are connected to one master: accounting goes out, controls come in.

This module does not know messages. "Both are physically outgoing from the gatekeeper": an XPUB socket, which receives
the subscriptions of the master (whether it is connected, and whether it reads batches), and a SUB socket. No call waits
for the master. Gatekeepers and routers have one `MasterConnection` for each of their masters.

Which of several masters gets the accounting of a domain, or of one identifier of it, is decided by rendezvous hashing:
"A ZeroMQ router may be employed to shard accounting messages to multiple masters, provided that all messages for the
same domain go to the same master" (smockron.txt, Protocol). Each master has a weight for each item, and the one with
the largest weight owns the item. So all gatekeepers and routers that list the same masters agree without a message, and
a master that is lost or added moves only items of its own.
"""

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from hashlib import blake2b

import zmq

from headgate.limit.messages import topic
from headgate.link.batch import BATCH, HOLDS, HOLDS_SIZE, MASTERS
from headgate.link.connections import Log, OutgoingConnections, OutgoingCounters, log_warning
from headgate.link.curve import ClientKeys
from headgate.link.sockets import (
    NOBLOCK,
    SNDMORE,
    Socket,
    close_sockets,
    connect_pair,
    has_message,
    open_socket,
    repeat,
)

_MAX_CONTROL_SIZE = 4_096
_MAX_QUEUED = 500
"""Messages that ZeroMQ queues for each master, set once: see docs/decisions/bus.md."""
_LINGER = 200
"""Milliseconds in which a master receives what is queued for it when the connection is closed, as by a reload."""
_HEARTBEAT_INTERVAL = 2_000
"""Milliseconds between two heartbeats, and for the answer to one: a stopped master is noticed within 4 s."""
_CONTROL = 1
"""The number of the control socket among the two."""
_CHANGES = {b"\1": 1, b"\0": -1}
"""Subscriptions that a message of the accounting socket adds, by its first byte."""


_MAX_OWNED = 1_024
"""Items whose owners are remembered: peers of a router choose them."""


class MasterConnection:
    """The connection to the master at `address`, which need not be running yet.

    At most `queue` messages wait for it in ZeroMQ. A master that does not answer heartbeats is disconnected. With
    `keys`, both sides authenticate by CURVE. Failed handshakes are counted in `counters` and reported to `log`.
    `changed` is called when a connection is made or lost. Raises `ConfigurationError` for an invalid address,
    `LinkError` for one that cannot be connected to.
    """

    def __init__(
        self,
        context: "zmq.Context[Socket]",
        address: str,
        *,
        counters: OutgoingCounters,
        queue: int = _MAX_QUEUED,
        keys: ClientKeys | None = None,
        log: Log = log_warning,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        """The address as it was given."""
        self.is_subscribed = False
        """Whether the master is subscribed to accounting."""
        self.reads_batches = False
        """Whether it reads batches; an original master reads the document's frames only."""
        self.sent = self.dropped = self.controls = 0
        """What a router counts: records sent to it, records dropped because its queue is full, and its controls."""
        self._subscriptions = self._to_batches = 0
        self._own = HOLDS + os.urandom(HOLDS_SIZE - len(HOLDS))
        self._announced = b""
        queue = min(queue, _MAX_QUEUED)
        self._accounting = open_socket(context, zmq.XPUB, queue=queue, largest=_MAX_CONTROL_SIZE)
        self.control = open_socket(context, zmq.SUB, queue=queue, largest=_MAX_CONTROL_SIZE)
        """Subscribes to controls; a repeated subscription reaches the master, too, which then repeats its holds."""
        self.sockets: tuple[Socket, Socket] = (self._accounting, self.control)
        """Both sockets, to be watched by an event loop or a poller."""
        # Report a full queue, so that it can be counted.
        self._accounting.setsockopt(zmq.XPUB_NODROP, 1)
        # Report each peer's subscriptions and their end, so that those of a master that stops are removed.
        self._accounting.setsockopt(zmq.XPUB_VERBOSER, 1)
        self._accounting.setsockopt(zmq.IMMEDIATE, 1)
        self._accounting.setsockopt(zmq.LINGER, _LINGER)
        for socket in self.sockets:
            socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_INTERVAL)
        self.connections = OutgoingConnections(self.sockets, keys, counters, log, changed)
        """The state of their connections, to be watched, too."""
        try:
            self.endpoints = connect_pair(self._accounting, self.control, address, keys)
            """What the two sockets are connected to."""
            self.connections.endpoints = self.endpoints
        except BaseException:
            self.close()
            raise

    @property
    def is_up(self) -> bool:
        """Whether the master is connected: it is subscribed to accounting, and its controls arrive.

        The two connections are made one after the other, after a loss up to 2 s apart.
        """
        return self.is_subscribed and self.connections.is_connected(_CONTROL)

    def subscribe_domain(self, topic: bytes) -> None:
        """Subscribe to the controls of a domain; the master then sends its holds to this connection only."""
        self.control.subscribe(self._own + topic)
        self.control.subscribe(topic)

    def unsubscribe_domain(self, topic: bytes) -> None:
        """End the subscription to the controls of a domain."""
        self.control.unsubscribe(self._own + topic)
        self.control.unsubscribe(topic)

    def announce(self, digest: bytes) -> None:
        """Tell the master which masters this side lists, by a digest: all that share domains must list the same."""
        before, self._announced = self._announced, MASTERS + digest + self._own[len(HOLDS) :]
        if before != self._announced:
            self.control.subscribe(self._announced)
            if before:
                self.control.unsubscribe(before)

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send a message of accounting, or drop it if the queue is full; return whether it was sent."""
        send = self._accounting.send
        try:
            for frame in frames[:-1]:
                send(frame, SNDMORE)
            send(frames[-1], NOBLOCK)
        except zmq.Again:  # raised at the first frame only: ZeroMQ has room for a whole message, or for none
            return False
        return True

    @property
    def has_subscription(self) -> bool:
        """Whether a subscription, or the end of one, is waiting."""
        return has_message(self._accounting)

    def receive_subscriptions(self, limit: int) -> bool:
        """Receive up to `limit` subscriptions; return whether more may be waiting."""
        return repeat(self._receive_subscription, limit)

    def _receive_subscription(self) -> None:
        """Count a subscription; a headgate master has one to everything, and one that offers to read batches."""
        message = self._accounting.recv(NOBLOCK)
        change = _CHANGES.get(message[:1], 0)
        self._subscriptions += change
        if message[1:] == BATCH:
            self._to_batches += change
        self.is_subscribed = self._subscriptions > 0
        # With more subscriptions than that, one peer may be an original master.
        self.reads_batches = 0 < self._subscriptions <= 2 * self._to_batches

    def receive_controls(self, limit: int, handle: Callable[[list[bytes]], None]) -> bool:
        """Pass up to `limit` messages of the control socket to `handle`; return whether more may be waiting."""
        return repeat(lambda: handle(self.control.recv_multipart(NOBLOCK)), limit)

    def close(self) -> None:
        """Close the sockets; call it when no event loop watches them."""
        self.connections.close()
        close_sockets(self.sockets)


class Owners:
    """Which of `masters`, by their names, owns an item: one of those that are subscribed to accounting."""

    def __init__(self, masters: Mapping[str, MasterConnection]) -> None:
        self._masters = masters
        self._sharding = Sharding(masters)
        self.digest = self._sharding.digest
        """Says which masters these are."""
        self.known: dict[bytes, tuple[MasterConnection | None, bool]] = {}
        """What `find` has found; clear it when a subscription has begun or ended."""

    def find(self, item: bytes) -> tuple[MasterConnection | None, bool]:
        """Return the owner of an item, None without a master; and whether it belongs to another one, which is lost."""
        if item not in self.known:
            if len(self.known) >= _MAX_OWNED:
                self.known.clear()
            live = {name for name, master in self._masters.items() if master.is_subscribed}
            owner = self._sharding.owner(item, live)
            is_moved = owner not in {None, self._sharding.owner(item, self._masters)}
            self.known[item] = (self._masters[owner] if owner else None), is_moved
        return self.known[item]


_WEIGHT_SIZE = 8
_KEY_SIZE = 32


class Sharding:
    """Assigns items to `masters`, the texts of their addresses; their order has no effect."""

    def __init__(self, masters: Iterable[str]) -> None:
        # An address may be longer than the key of a hash, so the key is its digest.
        keys = {
            address: blake2b(address.encode("utf-8", "surrogateescape"), digest_size=_KEY_SIZE).digest()
            for address in masters
        }
        self.digest = blake2b(b"".join(sorted(keys.values())), digest_size=_WEIGHT_SIZE).digest()
        """What two sides have in common that assign all items alike."""
        self._hashes = [(address, blake2b(key=key, digest_size=_WEIGHT_SIZE)) for address, key in keys.items()]

    def owner(self, item: bytes, live: Container[str]) -> str | None:
        """Return the master among those in `live` with the largest weight for `item`; None if none is live."""
        best = (b"", "")
        for address, keyed in self._hashes:
            if address in live:
                weight = keyed.copy()
                weight.update(item)
                best = max(best, (weight.digest(), address))
        return best[1] or None


def sharding_item(domain: str, identifier: bytes = b"") -> bytes:
    """Return the item that stands for a domain, or for one identifier of it.

    A domain contains no NUL, so two different pairs are two items.
    """
    return topic(domain) + identifier
