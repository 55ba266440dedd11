"""The two sockets that are connected to one master: accounting goes out, controls come in.

This module does not know messages. "Both are physically outgoing from the gatekeeper": an XPUB socket, which receives
the subscriptions of the master (whether it is connected, and whether it reads batches), and a SUB socket. No call waits
for the master. Gatekeepers and routers have one `MasterConnection` for each of their masters.
"""

import time
from collections.abc import Callable, Sequence

import zmq

from headgate.link.connections import Log, OutgoingConnections, OutgoingCounters, log_warning
from headgate.link.curve import ClientKeys
from headgate.link.heartbeats import Heartbeats
from headgate.link.message_reader import MessageReader
from headgate.link.sockets import (
    NOBLOCK,
    SNDMORE,
    Socket,
    close_sockets,
    connect_pair,
    disconnect_pair,
    has_message,
    open_socket,
    set_heartbeats,
)
from headgate.link.subscriptions import Subscriptions

_MAX_CONTROL_SIZE = 4_096
_MAX_FRAMES = 8
_CONTROL = 1
"""The number of the control socket among the two."""
_EFFECTS = {b"\1": zmq.SUBSCRIBE, b"\0": zmq.UNSUBSCRIBE}


class MasterConnection:
    """The connection to the master at `address`, which need not be running yet.

    `subscriptions` receives what the master subscribes to. At most `queue` messages wait for it in ZeroMQ. With
    `heartbeats` a master that does not answer is disconnected. With `keys`, both sides authenticate by CURVE. Failed
    handshakes are counted in `counters` and reported to `log`. `changed` is called when a connection is made or lost.
    Raises `ConfigurationError` for an invalid address, `LinkError` for one that cannot be connected to.
    """

    def __init__(
        self,
        context: "zmq.Context[Socket]",
        address: str,
        subscriptions: Subscriptions,
        *,
        queue: int,
        heartbeats: Heartbeats | None,
        counters: OutgoingCounters,
        keys: ClientKeys | None = None,
        log: Log = log_warning,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        """The address as it was given."""
        self.subscriptions = subscriptions
        """What the master subscribes to."""
        self._heartbeats = heartbeats
        self._keys = keys
        self._accounting = open_socket(context, zmq.XPUB, queue=queue, largest=_MAX_CONTROL_SIZE)
        self._control = open_socket(context, zmq.SUB, queue=queue, largest=_MAX_CONTROL_SIZE)
        self.sockets: tuple[Socket, Socket] = (self._accounting, self._control)
        """Both sockets, to be watched by an event loop or a poller."""
        self._controls = MessageReader(self._control, _MAX_FRAMES)
        # Report a full queue, so that it can be counted.
        self._accounting.setsockopt(zmq.XPUB_NODROP, 1)
        # Report each peer's subscriptions and their end, so that those of a master that stops are removed.
        self._accounting.setsockopt(zmq.XPUB_VERBOSER, 1)
        # A subscription takes effect when it is received here: a master gets no message that was sent before.
        self._accounting.setsockopt(zmq.XPUB_MANUAL, 1)
        self._accounting.setsockopt(zmq.IMMEDIATE, 1)
        self.connections = OutgoingConnections(self.sockets, keys, counters, log, changed)
        """The state of their connections, to be watched, too."""
        try:
            self._set_heartbeats()
            self.endpoints = connect_pair(self._accounting, self._control, address, keys)
            """What the two sockets are connected to."""
            self.connections.set_endpoints(self.endpoints)
        except BaseException:
            self.close()
            raise

    @property
    def is_up(self) -> bool:
        """Whether the master is connected: it is subscribed to accounting, and its controls arrive.

        The two connections are made one after the other, after a loss up to 2 s apart.
        """
        return bool(self.subscriptions) and self.connections.is_connected(_CONTROL)

    @property
    def has_reported_failure(self) -> bool:
        """Whether a failed handshake has been reported, and none has succeeded since."""
        return self.connections.has_reported_failure

    def subscribe(self, prefix: bytes) -> None:
        """Subscribe to controls; a repeated subscription reaches the master, too, which then repeats its holds."""
        self._control.subscribe(prefix)

    def unsubscribe(self, prefix: bytes) -> None:
        """End one of the equal subscriptions to `prefix`."""
        self._control.unsubscribe(prefix)

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
        """Receive up to `limit` subscriptions into `subscriptions`; return whether more may be waiting."""
        if not has_message(self._accounting):
            return False
        was_subscribed, more = bool(self.subscriptions), True
        try:
            for _ in range(limit):
                message = self._accounting.recv(NOBLOCK)
                if message[:1] in _EFFECTS:
                    self._accounting.setsockopt(_EFFECTS[message[:1]], message[1:])
                self.subscriptions.update(message)
        except zmq.Again:
            more = False
        if bool(self.subscriptions) != was_subscribed:
            self._on_change()
        return more

    def _on_change(self) -> None:
        if self._heartbeats is None:
            return
        moment = time.monotonic()
        if self.subscriptions:
            self._heartbeats.connected(moment)
        elif self._heartbeats.lost(moment):
            # The options of a connection are those of the time when it was asked for.
            disconnect_pair(self._accounting, self._control, self.endpoints)
            self._set_heartbeats()
            connect_pair(self._accounting, self._control, self.address, self._keys)

    def _set_heartbeats(self) -> None:
        if self._heartbeats is not None:
            for socket in self.sockets:
                set_heartbeats(socket, self._heartbeats.interval)

    def receive_controls(self, limit: int, handle: Callable[[list[bytes]], None]) -> bool:
        """Pass up to `limit` messages of the control socket to `handle`; return whether more may be waiting.

        Of a message, the first eight frames are passed.
        """
        if not has_message(self._control):
            return False
        try:
            for _ in range(limit):
                if frames := self._controls.read():
                    handle(frames)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """Close the sockets; call it when no event loop watches them."""
        self.connections.close()
        close_sockets(self.sockets)
