"""The connections of the bus: handshakes that fail are counted and reported, connections that ended are made again.

This module reads libzmq's events about connections, never messages. `BoundConnections` is for the side that binds,
`OutgoingConnections` for the side that connects: after an error of the protocol, such as a peer without the same
security mechanism, or a frame that is too long, libzmq does not connect again.
"""

import logging
import socket as plain
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import zmq
from msgspec import Struct
from zmq.utils import z85

from headgate.errors import LinkError
from headgate.limit.messages import domain_of
from headgate.link.batch import BATCH, MASTERS, MASTERS_SIZE, public_topic
from headgate.link.curve import AllowedKey, ClientKeys, ServerKeys
from headgate.link.sockets import (
    NOBLOCK,
    LoopDriver,
    Socket,
    bind_again,
    bind_pair,
    close_sockets,
    file_descriptor,
    open_socket,
    repeat,
)
from headgate.release import NEVER

Log = Callable[[str], None]
"""Receives a line for the operator."""

log_warning: Final[Log] = logging.getLogger("headgate.link").warning
"""Where lines go by default."""

_WARNING_INTERVAL: Final = 3_600.0
"""Seconds between two warnings of one kind."""
_MAX_KINDS: Final = 64
"""Kinds of warnings that are told apart: peers choose some of them."""

_HANDSHAKE_PATIENCE: Final = 5.0
"""Seconds after which a connection that ends without a handshake was not answered, rather than refused."""

_RECONNECT_DELAY: Final = 2.0
"""Seconds until a connection that libzmq has given up is made again: the longest of its own pauses."""

_FAILURES_IN_A_ROW: Final = 4
"""Connections that close during the handshake before this is reported: one may belong to a master that stops."""

_QUEUE: Final = 10_000
"""Messages that a bound socket queues for each peer."""
_MAX_ACCOUNTING_SIZE: Final = 256 * 1024
"""Maximum bytes of a frame of accounting: a batch of long identifiers and log info."""
_MAX_SUBSCRIPTION_SIZE: Final = 1_024
_MAX_PEERS: Final = 65_536
"""Gatekeepers and routers that are counted."""
_WITHOUT_KEYS: Final = "none"

_MAX_EVENTS: Final = 256
"""Events, and requests for authentication, handled per turn."""

_AUTH: Final = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_PROTOCOL: Final = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_CLOSED: Final = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
_SUCCEEDED: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_ACCEPTED: Final = int(zmq.EVENT_ACCEPTED)
_CONNECTED: Final = int(zmq.EVENT_CONNECTED)
_DISCONNECTED: Final = int(zmq.EVENT_DISCONNECTED)
_RETRIED: Final = int(zmq.EVENT_CONNECT_RETRIED)
_FAILED: Final = _AUTH | _PROTOCOL | _CLOSED
_FAILURE: Final = (
    "failed its handshake: its peer does not use CURVE, or not the key of this server, or this process did not answer"
)
_MISMATCH: Final = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
_EVENT: Final = struct.Struct("=HI")


class Warnings:
    """Writes the first warning of a kind to `log`, then one an hour, with the number of those that were left out."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._due: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def add(self, kind: str, text: str, times: int = 1) -> None:
        """Write a warning about something that happened so many times, or count these for the next one of its kind."""
        moment = time.monotonic()
        if len(self._due) >= _MAX_KINDS and kind not in self._due:
            self._due = {kind: due for kind, due in self._due.items() if due > moment}
            self._left_out = {kind: number for kind, number in self._left_out.items() if kind in self._due}
            kind = kind if len(self._due) < _MAX_KINDS else ""
        if moment < self._due.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + times
            return
        number = self._left_out.pop(kind, 0) + times - 1
        self._log(f"{text} ({number} more since the last such line)" if number else text)
        self._due[kind] = moment + _WARNING_INTERVAL


class ConnectionEvents:
    """The events of `kinds` about the connections of one socket; create it before the socket is bound or connected."""

    def __init__(self, socket: Socket, kinds: int) -> None:
        self._watched = socket
        address = f"inproc://headgate-events-{file_descriptor(socket)}"
        socket.monitor(address, kinds)
        self.socket = socket.context.socket(zmq.PAIR)
        """The socket that events are read from."""
        self.socket.setsockopt(zmq.LINGER, 0)
        # Without a limit: libzmq's I/O thread would wait for a reader. Handshakes take longer than reading events.
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.connect(address)

    def read(self) -> tuple[list[tuple[int, int]], bool]:
        """Return a limited number of events, each a kind and a value, and whether more may be waiting."""
        events: list[tuple[int, int]] = []
        more = repeat(lambda: events.append(_EVENT.unpack(self.socket.recv_multipart(NOBLOCK)[0])), _MAX_EVENTS)
        return events, more

    def close(self) -> None:
        """Stop the events; call it before the socket is closed."""
        self._watched.disable_monitor()
        self.socket.close()


_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_ZAP_VERSION = b"1.0"
_ADMITTED = (b"200", b"OK")
_REFUSED = (b"400", b"key not allowed")
_MECHANISM = b"CURVE"


class OutgoingCounters(Struct):
    """What is counted of the connections to masters."""

    failed_handshakes: int = 0
    """Connections whose handshake failed: the peer refuses the key, or has another one, or only one side uses CURVE."""


class BoundCounters(OutgoingCounters):
    """What is counted of connections to bound sockets, too."""

    refused_keys: int = 0
    """Connections refused: the key of the peer is not allowed."""


class BoundConnections:
    """Counts the failed handshakes of bound sockets in `counters`, and authenticates their peers by CURVE.

    After `authenticate`, `log` receives warnings about failed handshakes.
    """

    def __init__(self, sockets: Iterable[Socket], counters: BoundCounters, log: Log = log_warning) -> None:
        self._counters = counters
        self.warnings = Warnings(log)
        """Where warnings about peers go."""
        self._events = [ConnectionEvents(socket, _FAILED | _ACCEPTED | _DISCONNECTED) for socket in sockets]
        self._requests: Socket | None = None
        self._allowed: Mapping[bytes, AllowedKey] = {}
        self._is_restricted = False
        self._addresses: dict[int, str] = {}
        self._has_failed = False

    @property
    def sockets(self) -> Sequence[Socket]:
        """The sockets to wait for."""
        more = [] if self._requests is None else [self._requests]
        return [*(events.socket for events in self._events), *more]

    def authenticate(self, allowed: Mapping[bytes, AllowedKey]) -> bool:
        """Admit peers with these public keys only, in Z85; a change applies to connections made after it.

        Return whether a connection may exist that the list does not permit any more: a key or one of its domains is
        gone. Raises `LinkError` if the context of the sockets has another list.
        """
        if self._requests is None:
            self._requests = _authenticator(self._events[0].socket.context)
        before, self._allowed = self._allowed, allowed
        self._is_restricted = any(key.domains for key in allowed.values())
        return any(key not in allowed or allowed[key].domains != old.domains for key, old in before.items())

    def permits(self, frame: zmq.Frame, topic: bytes) -> bool:
        """Return whether the sender of a message may account for a domain and receive its holds."""
        if not self._is_restricted:
            return True
        user, domain = _metadata(frame, "User-Id"), domain_of(topic)
        key = self._allowed.get(user.encode())
        if key is None or not key.domains or domain in key.domains:
            return key is not None
        name = key.name or user
        self.warnings.add(
            f"domain of {user}", f"the key {name} uses the domain {domain!r}, which curve_allow does not list for it"
        )
        return False

    @property
    def key_names(self) -> list[str]:
        """The names of the allowed keys; of those without a name, the keys."""
        return [one.name or key.decode() for key, one in self._allowed.items()]

    def key_name(self, frame: zmq.Frame) -> str:
        """Return the name of the key of the sender of a message; empty if it has none, or it is not allowed."""
        user = _metadata(frame, "User-Id")
        key = self._allowed.get(user.encode())
        return (key.name or user) if key is not None else ""

    def name(self, frame: zmq.Frame) -> str:
        """Return what the operator knows the sender of a message by: the name of its key, and its address."""
        key, address = self.key_name(frame), _metadata(frame, "Peer-Address")
        names = [f"the key {key}"] if key else []
        return " at ".join([*names, *([address] if address else [])]) or "a peer on this machine"

    def turn(self) -> float:
        """Handle what is waiting; return 0 if more may be waiting, otherwise infinity."""
        more = self._requests is not None and repeat(partial(self._answer, self._requests), _MAX_EVENTS)
        for source in self._events:
            events, waiting = source.read()
            more |= waiting
            for kind, value in events:
                self._on_event(kind, value)
        return 0.0 if more else NEVER

    def close(self) -> None:
        """Stop; call it before the sockets are closed."""
        for events in self._events:
            events.close()
        if self._requests is not None:
            self._requests.close()

    def _answer(self, requests: Socket) -> None:
        """Answer a request of libzmq for authentication."""
        request = requests.recv_multipart(NOBLOCK)
        key = self._allowed_key(request)
        status = _ADMITTED if key else _REFUSED
        # Version, request id, status, its text, user id, metadata. Messages of the peer carry the user id.
        requests.send_multipart([_ZAP_VERSION, b"".join(request[1:2]), *status, key, b""], NOBLOCK)

    def _allowed_key(self, request: list[bytes]) -> bytes:
        """Return the key of a request (version, id, domain, address, identity, mechanism, key) if it is allowed."""
        if len(request) != 7 or request[0] != _ZAP_VERSION or request[5] != _MECHANISM:
            return b""
        key = z85.encode(request[6])
        if key in self._allowed:
            return key
        address, text = request[3].decode("ascii", "replace"), key.decode()
        self.warnings.add(
            f"refused {text}",
            f"refused a peer at {address}: its public key {text} is not in the list of allowed keys",
        )
        return b""

    def _on_event(self, kind: int, value: int) -> None:
        """Count a failed handshake; the event of its end, which follows, has the descriptor of the connection."""
        if kind == _ACCEPTED:
            self._addresses[value] = _peer_address(value)
        elif kind == _DISCONNECTED:
            address = self._addresses.pop(value, "")
            if self._has_failed and self._requests is not None:
                self.warnings.add(_FAILURE, f"a connection{address} {_FAILURE}")
            self._has_failed = False
        elif kind == _AUTH:
            self._counters.refused_keys += 1
        else:
            self._counters.failed_handshakes += 1
            self._has_failed = True


def _authenticator(context: "zmq.Context[Socket]") -> Socket:
    """Return the socket of libzmq's requests. Raises `LinkError` if the context has one already."""
    socket = context.socket(zmq.REP)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.bind(_ZAP_ENDPOINT)
    except zmq.ZMQError:
        socket.close()
        raise LinkError("a context can have one list of allowed keys; use another context for this link") from None
    return socket


def _metadata(frame: zmq.Frame, name: str) -> str:
    """Return a property that libzmq attaches to a received frame; empty if it is missing, as within a process."""
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""


def _peer_address(descriptor: int) -> str:
    """Return where a connection of libzmq comes from, as words for a warning; empty if it has ended already."""
    try:
        connection = plain.socket(fileno=descriptor)
    except OSError:
        return ""
    try:
        return f" from {connection.getpeername()[0]}"
    except (OSError, IndexError):  # a Unix socket has no name
        return ""
    finally:
        connection.detach()


class BoundLink:
    """The two sockets of a master or a router, bound to `address`; see `MasterLink` for the arguments."""

    def __init__(
        self,
        address: str,
        counters: BoundCounters,
        *,
        keys: ServerKeys | None,
        insecure: bool,
        context: "zmq.Context[Socket] | None",
        log: Log,
    ) -> None:
        self._drivers: list[LoopDriver] = []
        self._has_keys, self._must_bind = keys is not None, False
        self._peers: dict[bytes, tuple[str, int]] = {}
        self._own_context = context is None
        self.context: zmq.Context[Socket] = zmq.Context() if context is None else context
        """The context of the sockets."""
        self.accounting = open_socket(self.context, zmq.SUB, queue=_QUEUE, largest=_MAX_ACCOUNTING_SIZE)
        self.control = open_socket(self.context, zmq.XPUB, queue=_QUEUE, largest=_MAX_SUBSCRIPTION_SIZE)
        # Report each peer's subscriptions, because it needs the holds in force, and their end.
        self.control.setsockopt(zmq.XPUB_VERBOSER, 1)
        self.connections = BoundConnections((self.accounting, self.control), counters, log)
        """The state of their connections, to be watched, too."""
        try:
            if keys is not None:
                # Subscriptions take effect once they are permitted.
                self.control.setsockopt(zmq.XPUB_MANUAL, 1)
                self.connections.authenticate(keys.allowed)
            self.endpoints = bind_pair(self.accounting, self.control, address, keys, insecure=insecure)
            """What the two sockets are bound to."""
        except BaseException:
            self.close()
            raise

    def set_allowed_keys(self, allowed: Mapping[bytes, AllowedKey]) -> None:
        """Replace the public keys that may connect; the link must have keys.

        If less is permitted than before, all connections end, and peers connect again: libzmq cannot end the connection
        of one peer. Raises `LinkError` if the sockets cannot be bound again.
        """
        self._must_bind |= self.connections.authenticate(allowed)
        if self._must_bind:
            bind_again((self.accounting, self.control), self.endpoints)
            self._must_bind = False  # after an error, the next call tries again

    def receive(self) -> tuple[list[bytes], bool, zmq.Frame]:
        """Return the next message of accounting, whether its sender may account for its domain, and its first frame.

        Raises `zmq.Again` if none is waiting.
        """
        first = self.accounting.recv(NOBLOCK, copy=False)  # only such a frame knows its sender
        frames = [first.bytes]
        if first.more:
            frames += self.accounting.recv_multipart(NOBLOCK)
        return frames, self.connections.permits(first, frames[0].removeprefix(BATCH)), first

    def receive_subscription(self) -> bytes:
        """Return the next message of the control socket; empty for a subscription that is not permitted.

        Raises `zmq.Again` if none is waiting.
        """
        if not self._has_keys:
            message = self.control.recv(NOBLOCK)
            self._note_peer(message, _WITHOUT_KEYS)
            return message
        frame = self.control.recv(NOBLOCK, copy=False)
        message, prefix = frame.bytes, frame.bytes[1:]
        if message[:1] == b"\1":
            # A prefix without its NUL is that of other domains, too.
            topic = public_topic(prefix) if prefix.endswith(b"\0") else b""
            if not prefix.startswith(MASTERS) and not self.connections.permits(frame, topic):
                return b""
            self.control.setsockopt(zmq.SUBSCRIBE, prefix)
        elif message[:1] == b"\0":
            self.control.setsockopt(zmq.UNSUBSCRIBE, prefix)
        self._note_peer(message, self.connections.key_name(frame))
        return message

    def _note_peer(self, message: bytes, key: str) -> None:
        """Note who lists its masters: that subscription has its number, and ends with its connection."""
        prefix = message[1:]
        if prefix.startswith(MASTERS):
            # Its next connection may begin before the end of the last one is known.
            key, connections = self._peers.pop(prefix, (key, 0))
            connections += 1 if message[:1] == b"\1" else -1
            if connections > 0 and len(self._peers) < _MAX_PEERS:
                self._peers[prefix] = key, connections

    @property
    def gatekeepers(self) -> dict[str, int]:
        """The number of connected gatekeepers and routers by the names of their keys, "none" without keys."""
        counts = Counter({prefix[MASTERS_SIZE:]: key for prefix, (key, _) in self._peers.items()}.values())
        return dict.fromkeys(self.connections.key_names or [_WITHOUT_KEYS], 0) | counts

    def _stop(self) -> None:
        """Leave the event loop."""
        while self._drivers:
            self._drivers.pop().close()

    def close(self) -> None:
        """Leave the loop and close the sockets; messages in transit are dropped. Can be called twice."""
        if self.accounting.closed:
            return
        self._stop()
        self.connections.close()
        close_sockets((self.accounting, self.control))
        if self._own_context:
            self.context.term()


class OutgoingConnections:
    """Keeps two sockets connected to a master, counts failed handshakes, and reports them to `log` once an hour.

    They are reported at once after a handshake that succeeds. `keys` are those of the sockets, for the report.
    `changed` is called when a connection is made or lost.
    """

    def __init__(
        self,
        sockets: Sequence[Socket],
        keys: ClientKeys | None,
        counters: OutgoingCounters,
        log: Log = log_warning,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._watched = sockets
        self._keys = keys
        self._counters = counters
        self._log = log
        self._failures = 0
        self._warnings = Warnings(log)
        self.has_reported_failure = False
        """Whether a failed handshake has been reported, and none has succeeded since."""
        self._made = [NEVER for _ in sockets]
        self._changed = changed
        self._connected = [False for _ in sockets]
        self._due = [NEVER for _ in sockets]
        self.endpoints: Sequence[str] = ("", "")
        """What the sockets are connected to."""
        self._events = [
            ConnectionEvents(one, _FAILED | _CONNECTED | _SUCCEEDED | _DISCONNECTED | _RETRIED) for one in sockets
        ]

    @property
    def sockets(self) -> Sequence[Socket]:
        """The sockets to wait for."""
        return [events.socket for events in self._events]

    def is_connected(self, number: int) -> bool:
        """Return whether a socket is connected; within a process it always is."""
        return self._connected[number] or self.endpoints[number].startswith("inproc://")

    def turn(self) -> float:
        """Handle what is waiting, and connect again where it is due; return the seconds until the next call."""
        moment, more, before = time.monotonic(), False, list(self._connected)
        for number, source in enumerate(self._events):
            events, waiting = source.read()
            more |= waiting
            for kind, value in events:
                self._on_event(number, kind, value, moment)
            if self._due[number] <= moment:
                self._connect_again(number)
        if self._connected != before:
            self._changed()
        return 0.0 if more else max(0.0, min(self._due) - moment)

    def close(self) -> None:
        """Stop; call it before the sockets are closed."""
        for events in self._events:
            events.close()

    def _on_event(self, number: int, kind: int, value: int, moment: float) -> None:
        if kind in {_DISCONNECTED, _SUCCEEDED}:
            self._connected[number] = kind == _SUCCEEDED
        if kind == _DISCONNECTED:
            # If libzmq connects again by itself, the next event is _RETRIED.
            self._due[number] = moment + _RECONNECT_DELAY
        elif kind == _RETRIED:
            self._due[number] = NEVER
        elif kind == _CONNECTED:
            self._made[number] = moment
        elif kind == _SUCCEEDED:
            self._failures, self.has_reported_failure, self._warnings = 0, False, Warnings(self._log)
        elif reason := self._reason(kind, value, moment - self._made[number]):
            self.has_reported_failure = True
            self._warnings.add(reason, f"{self.endpoints[0]}: {reason}. Meanwhile, its holds do not arrive here")

    def _reason(self, kind: int, value: int, age: float) -> str:
        """Return why a handshake failed, as far as it is known; empty if it may have been a master that stopped.

        `age` is that of the connection, in seconds.
        """
        if kind == _CLOSED and age > _HANDSHAKE_PATIENCE:
            return "the master accepts connections and does not answer: it hangs, or the network drops its messages"
        self._failures += 1
        self._counters.failed_handshakes += 1
        if kind == _AUTH:
            own = "of this side" if self._keys is None else self._keys.own.public.decode()
            return f"the master refuses the public key {own}; add it to the curve_allow file of the master"
        if kind == _PROTOCOL and value == _MISMATCH:
            if self._keys is not None:
                return "the master does not use CURVE; give it keys, or leave out curve_key and curve_server here"
            return "the master requires CURVE; set curve_key and curve_server here"
        if self._failures < _FAILURES_IN_A_ROW:
            return ""
        if self._keys is not None:
            return "the master ends each handshake: curve_server is not its public key, or it does not use CURVE"
        return "the master ends each handshake: it may require CURVE (curve_key and curve_server here)"

    def _connect_again(self, number: int) -> None:
        socket, endpoint = self._watched[number], self.endpoints[number]
        self._due[number] = NEVER
        with suppress(zmq.ZMQError):  # libzmq may have forgotten the endpoint with its connection
            socket.disconnect(endpoint)
        with suppress(zmq.ZMQError):
            socket.connect(endpoint)
