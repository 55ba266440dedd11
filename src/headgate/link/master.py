"""A master's link to its gatekeepers: it receives accounting and publishes controls.

Each message of accounting is one of the document's or a batch, or is counted as malformed.

This module does not know rules. "Both are physically outgoing from the gatekeeper (bind() on the master […])": a SUB
socket that subscribes to every topic, and an XPUB socket on the next port, which receives subscriptions: "gatekeeper
subscribes to all domains for which it will receive traffic".
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator

import zmq
from msgspec import field

from headgate.errors import WireError
from headgate.limit.master import MAX_LAG, Master
from headgate.limit.messages import MAX_CONTROL_FRAME, DelayUntil, control_frames, decode_accounting, domain_of, topic
from headgate.link.batch import (
    BATCH,
    HOLDS_SIZE,
    MASTERS,
    MASTERS_SIZE,
    STATUS_OF,
    decode_batch,
    public_topic,
    record_count,
)
from headgate.link.connections import BoundCounters, BoundLink, Log, log_warning
from headgate.link.curve import ServerKeys
from headgate.link.sockets import NOBLOCK, SNDMORE, LoopDriver, Socket, repeat
from headgate.release import NEVER


class MasterCounters(BoundCounters):
    """Counters of a master since its start."""

    accounted: int = 0
    """Accounting messages and records read, including those for unknown domains."""
    batches: int = 0
    """Batches read."""
    dropped: dict[str, int] = field(default_factory=lambda: {"malformed": 0, "too_long": 0, "not_permitted": 0})
    """Messages, batches and records dropped: malformed; the identifier is too long for a control message; or the
    list of allowed keys does not list the domain for the key of the sender."""
    controls: int = 0
    """Controls published."""
    resent: int = 0
    """Controls published again for a new subscription."""
    subscriptions: int = 0
    """Subscriptions received."""
    other_lists: int = 0
    """Connections of peers that list other masters than a peer that was connected: a domain may have two masters."""


class AccountingReceiver:
    """Passes the accounting that `receive` returns to `master`, and the resulting holds to `publish`.

    `receive` is `BoundLink.receive`. `publish` takes a domain, an identifier of at most `MAX_CONTROL_FRAME` bytes and
    a release time. `on_wrong_clock` takes the first frame of a message whose timestamps are wrong, and how many of them
    are ahead of this machine's clock, and late.
    """

    def __init__(
        self,
        receive: Callable[[], tuple[list[bytes], bool, zmq.Frame]],
        master: Master,
        publish: Callable[[str, bytes, float], None],
        counters: MasterCounters,
        on_wrong_clock: Callable[[zmq.Frame, int, int], None],
    ) -> None:
        self._receive = receive
        self._publish = publish
        self._counters = counters
        self._on_wrong_clock = on_wrong_clock
        self.master = master
        """The master that further accounting is passed to."""

    def receive(self, limit: int, now: float) -> bool:
        """Read up to `limit` messages or records that arrive at `now`; return whether more may be waiting."""
        receive, master = self._receive, self.master
        try:
            while limit > 0:
                frames, is_permitted, first = receive()
                ahead, late = master.ahead, master.late
                limit -= self._process(frames, now, is_permitted=is_permitted)
                if master.ahead > ahead or master.late > late:
                    self._on_wrong_clock(first, master.ahead - ahead, master.late - late)
        except zmq.Again:
            return False
        return True

    def _process(self, frames: list[bytes], now: float, *, is_permitted: bool) -> int:
        """Process a message, or count why it is dropped; return the number of records in it, at least 1."""
        first = frames[0]
        try:
            if not is_permitted:
                records = record_count(frames)
                self._counters.dropped["not_permitted"] += records
                return records
            if first.startswith(BATCH):
                return self._process_batch(domain_of(first[len(BATCH) :]), frames[1] if len(frames) > 1 else b"", now)
            accounting = decode_accounting(frames)
        except WireError:
            self._counters.dropped["malformed"] += 1
            return 1
        self._counters.accounted += 1
        if len(accounting.identifier) > MAX_CONTROL_FRAME:
            self._counters.dropped["too_long"] += 1
        else:
            control = self.master.account(accounting, now)
            if control is not None:
                self._publish(control.domain, control.identifier, control.release)
        return 1

    def _process_batch(self, name: str, payload: bytes, now: float) -> int:
        counters, master = self._counters, self.master
        record, instant, behind = master.record, master.clock.read(now), master.clock.behind
        records = decode_batch(payload)
        counters.batches += 1
        counters.accounted += len(records)
        earliest, latest = now - MAX_LAG, now + master.max_delay
        for code, identifier, received, delayed, _ in records:
            timestamp = until = received / 1_000.0
            if len(identifier) > MAX_CONTROL_FRAME:
                counters.dropped["too_long"] += 1
                continue
            if code == 1:
                if not delayed:
                    counters.dropped["malformed"] += 1
                    continue
                until = delayed / 1_000.0
            if timestamp > now or timestamp < earliest or until < timestamp or until > latest:
                until = master.timestamp(timestamp, until, now)
            release = record(name, STATUS_OF[code], identifier, until + behind, instant)
            if release > instant:
                self._publish(name, identifier, release - behind)
        return len(records) or 1


RESEND_EVERY = 0.1
"""Seconds between two transmissions of all holds of a domain."""

_CHUNK_SIZE = 1_000
"""Holds sent at once, over all domains."""
_PAUSE = 0.01
"""Seconds between two chunks, in which a subscriber's queue drains."""
_GATHER_DELAY = 0.02
"""Seconds in which the second of the two subscriptions of a gatekeeper arrives."""
_MAX_ASKERS = 8
"""Gatekeepers that get the holds of a domain each by itself; if more ask at a time, all get them at once."""
_MAX_LISTS = 64
"""Lists of masters that are told apart: peers choose them."""
_STEP_COST = 100
"""Holds that could be sent in the time of a step that looks for some."""


class ControlPublisher:
    """Publishes controls on `socket`, and the holds of `master` for each new subscription.

    A gatekeeper that (re)connects has none of the holds in force. It asks for them with a subscription of its own,
    besides that to the domain, and no other gatekeeper receives the answer. An original gatekeeper does not ask: upon
    its subscription, and if many ask, all receive the holds. Those of a domain are sent again at most once per
    `RESEND_EVERY` seconds, whatever the number of subscriptions, and in parts. `warn` is called with the kind and the
    text of a warning.
    """

    def __init__(
        self,
        socket: Socket,
        receive: Callable[[], bytes],
        master: Master,
        counters: MasterCounters,
        clock: Callable[[], float],
        *,
        warn: Callable[[str, str], None] = lambda kind, text: None,  # noqa: ARG005
    ) -> None:
        self._socket = socket
        self._receive = receive
        self._counters = counters
        self._clock = clock
        self._warn = warn
        self._lists: Counter[bytes] = Counter()
        self._due: dict[str, float] = {}
        self._unanswered: dict[str, int] = {}
        self._askers: dict[str, list[bytes]] = {}
        self._resending: dict[str, tuple[list[bytes], Iterator[tuple[list[DelayUntil], bool]]]] = {}
        self._resent_at: dict[str, float] = {}
        self._paused_until = 0.0
        self.on_control: Callable[[str, bytes, float], None] | None = None
        """Called with each control that is published."""
        self.set_master(master)
        self._due.clear()  # no subscriber yet

    def set_master(self, master: Master) -> None:
        """Publish for another master, first the holds that it has."""
        self._master = master
        self._topics = {name: topic(name) for name in master.domains}
        self._resending.clear()
        self._askers.clear()
        self._unanswered = dict.fromkeys(self._topics, 1)
        self._due = dict.fromkeys(self._topics, time.monotonic())

    def publish(self, name: str, identifier: bytes, release: float) -> None:
        """Publish that every gatekeeper of the domain `name` holds `identifier`; both must fit their frames."""
        self._send(self._topics[name], identifier, release)
        self._counters.controls += 1
        if self.on_control is not None:
            self.on_control(name, identifier, release)

    def _send(self, frame: bytes, identifier: bytes, release: float) -> None:
        send = self._socket.send
        frame, command, identifier, timestamp = control_frames(frame, identifier, release)
        send(frame, SNDMORE)
        send(command, SNDMORE)
        send(identifier, SNDMORE)
        send(timestamp, NOBLOCK)

    def receive_subscriptions(self, limit: int) -> bool:
        """Receive up to `limit` subscriptions; return whether more may be waiting."""
        return repeat(self._receive_subscription, limit)

    def _receive_subscription(self) -> None:
        message = self._receive()
        if message[1:].startswith(MASTERS):
            self._on_list(message[1 : 1 + MASTERS_SIZE], is_new=message[:1] == b"\1")
        elif message[:1] == b"\1":
            self._counters.subscriptions += 1
            self._on_subscription(message[1:])

    def _on_list(self, digest: bytes, *, is_new: bool) -> None:
        """Compare what a peer lists as masters with what the others list."""
        if len(self._lists) < _MAX_LISTS or digest in self._lists:
            self._lists[digest] += 1 if is_new else -1
            self._lists = +self._lists  # those of connected peers
        if is_new and len(self._lists) > 1:
            self._counters.other_lists += 1
            self._warn(
                "lists",
                "gatekeepers or routers list different masters, or the same ones by other names: each list assigns the "
                "domains in its own way, so a domain may have two masters, and clients twice its rule; write the same "
                "addresses everywhere",
            )

    def _on_subscription(self, prefix: bytes) -> None:
        """Schedule the holds of the domains that a subscription matches: a topic, or a prefix of topics.

        An original gatekeeper subscribes to the domain without its NUL, which can be a prefix of other domains.
        """
        plain, soon = public_topic(prefix), time.monotonic() + _GATHER_DELAY
        matching = [name for name, frame in self._topics.items() if frame.startswith(plain)]
        for name in matching:
            self._due.setdefault(name, max(soon, self._resent_at.get(name, 0.0) + RESEND_EVERY))
            self._unanswered[name] = self._unanswered.get(name, 0) + (1 if plain is prefix else -1)
            if plain is not prefix and len(askers := self._askers.setdefault(name, [])) <= _MAX_ASKERS:
                askers.append(prefix[:HOLDS_SIZE])
        if not matching:
            self._master.note_unknown(domain_of(plain))

    def resend(self, moment: float) -> None:
        """Publish the next chunk of the scheduled holds; `moment` is monotonic seconds."""
        for name in [name for name, due in self._due.items() if due <= moment and name not in self._resending]:
            del self._due[name]
            self._resent_at[name] = moment
            to, is_for_all = self._askers.pop(name, []), self._unanswered.pop(name, 0) > 0
            if is_for_all or len(to) > _MAX_ASKERS:
                to = [b""]
            chunks = self._master.hold_batches(name, now=self._clock(), limit=_CHUNK_SIZE // max(1, len(to)))
            self._resending[name] = to, chunks
        room = 0 if moment < self._paused_until else _CHUNK_SIZE
        while self._resending and room > 0:
            name = next(iter(self._resending))
            to, chunks = self._resending.pop(name)
            chunk, more = next(chunks, ([], False))
            for control in chunk:
                for asker in to:
                    self._send(asker + self._topics[name], control.identifier, control.release)
            sent = len(chunk) * len(to)
            self._counters.resent += sent
            if more:
                self._resending[name] = to, chunks  # the last one in turn
            if sent:
                self._paused_until = moment + _PAUSE
            room -= sent + _STEP_COST

    def due(self) -> float:
        """Return the monotonic seconds at which `resend` has something to send; infinity for never."""
        waiting = [due for name, due in self._due.items() if name not in self._resending]
        return min([*waiting, self._paused_until if self._resending else NEVER])


_MAX_MESSAGES = 256
"""Messages received per turn of the event loop."""
_LAST_TURNS = 40
"""Turns at the end: as many messages as a queue of ZeroMQ holds."""
_FORGET_INTERVAL = 0.1
_MAX_EXAMINED = 1_000
"""Histories examined per interval."""


class MasterLink(BoundLink):
    """The two sockets of a master, bound when the link is created.

    `address` names the accounting port (see `headgate.link.sockets.endpoints`); port 0 lets the system choose, and
    `endpoints` has the result. Call `start` (with an event loop). `clock` returns seconds since 1970. An ``inproc://``
    address needs the `context` of its gatekeepers. With `keys`, gatekeepers must have one of the allowed keys; without,
    an address beyond loopback needs `insecure`. `log` receives warnings about peers. Raises `LinkError` if the address
    cannot be bound.
    """

    def __init__(
        self,
        master: Master,
        address: str,
        *,
        keys: ServerKeys | None = None,
        insecure: bool = False,
        clock: Callable[[], float] = time.time,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
        log: Log = log_warning,
    ) -> None:
        self.master = master
        """The master that computes release times."""
        self.counters = MasterCounters()
        """The counters since the start."""
        self._clock = clock
        super().__init__(address, self.counters, keys=keys, insecure=insecure, context=context, log=log)
        self._publisher = ControlPublisher(
            self.control,
            self.receive_subscription,
            master,
            self.counters,
            clock,
            warn=self.connections.warnings.add,
        )
        self._receiver = AccountingReceiver(
            self.receive, master, self._publisher.publish, self.counters, self._on_wrong_clock
        )
        self._forget_at = time.monotonic() + _FORGET_INTERVAL
        # "Master subscribes to "" (all messages)". A gatekeeper that receives the other one sends batches.
        for prefix in (b"", BATCH):
            self.accounting.subscribe(prefix)

    def set_master(self, master: Master) -> None:
        """Replace the master; its holds are published, because they may differ."""
        self.master = master
        self._receiver.master = master
        self._publisher.set_master(master)
        if self._drivers:
            self._drivers[0].wake()

    def follow(self, on_control: Callable[[str, bytes, float], None]) -> None:
        """Have each control that is published passed to another service, too: domain, identifier, release time."""
        self._publisher.on_control = on_control

    def publish(self, control: DelayUntil) -> None:
        """Publish a control that the master has learned; a link that was started sends it with the next turn."""
        self._publisher.publish(control.domain, control.identifier, control.release)
        # Sending may have consumed the event of a subscription.
        if self._drivers:
            self._drivers[0].wake_soon()

    def _on_wrong_clock(self, first: zmq.Frame, ahead: int, late: int) -> None:
        """Warn of a peer whose timestamps are wrong; behind a router, the clock is that of one of its gatekeepers."""
        peer, warnings = self.connections.name(first), self.connections.warnings
        if ahead:
            warnings.add(f"ahead {peer}", f"warning: the clock of {peer} is ahead of this machine's", ahead)
        if late:
            text = f"warning: requests of {peer} were received over {MAX_LAG:g} s before their accounting arrived"
            warnings.add(f"late {peer}", f"{text}: its clock is behind, or it, or its network, had stopped", late)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from an event loop until `close`."""
        self._drivers = [
            LoopDriver(loop, self._turn_and_timeout, (self.accounting, self.control)),
            LoopDriver(loop, self.connections.turn, self.connections.sockets),
        ]

    def receive_rest(self) -> None:
        """Receive the accounting that waits, so that the last snapshot has it; at most a limited number of messages."""
        for _ in range(_LAST_TURNS):
            if not self.turn():
                return

    def turn(self) -> bool:
        """Handle a limited number of messages; return whether more are waiting."""
        now = self._clock()
        more = self._receiver.receive(_MAX_MESSAGES, now)
        moment = time.monotonic()
        if moment >= self._forget_at:
            self._forget_at = moment + _FORGET_INTERVAL
            self.master.forget(now=now, most=_MAX_EXAMINED)
        self._publisher.resend(moment)
        # Last, because sending may have consumed the event of a subscription.
        return self._publisher.receive_subscriptions(_MAX_MESSAGES) or more

    def _turn_and_timeout(self) -> float:
        """Run one turn; return the seconds until the next one."""
        return 0.0 if self.turn() else max(0.0, min(self._forget_at, self._publisher.due()) - time.monotonic())
