"""A gatekeeper's link to its masters: it sends accounting and receives controls.

This module does not know requests. Controls come from all masters. The accounting of a domain goes to one of those that
are connected ("all messages for the same domain go to the same master", smockron.txt, Protocol): its owner by
rendezvous hashing, as in all other gatekeepers and routers with these masters. If the masters share the identifiers of
each domain, an identifier has one owner instead. No call waits for a master: messages that cannot be sent at once are
dropped and counted ("accounting messages from the gatekeepers will be dropped", Fault-Tolerance).
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal, Protocol, get_args
from zlib import crc32

import zmq
from msgspec import field

from headgate.errors import WireError, fail_if
from headgate.limit.messages import MAX_CONTROL_FRAME, Accounting, DelayUntil, decode_control, encode_accounting, topic
from headgate.link.batch import (
    BATCH,
    MAX_LOGINFO_SIZE,
    MAX_RECORDS,
    AccountingRecord,
    encode_batch,
    public_topic,
    to_record,
)
from headgate.link.connections import Log, OutgoingCounters, log_warning
from headgate.link.curve import ClientKeys, keys_of_masters
from headgate.link.master_connection import MasterConnection, Owners
from headgate.link.sockets import LoopDriver, endpoints
from headgate.release import NEVER, Status

Shard = Literal["domain", "identifier"]
"""What has one master: each domain, or each identifier of a domain."""

BATCH_DELAY = 0.005
"""Seconds that the first verdict of a batch waits for more."""

_MAX_MESSAGES = 256
"""Messages received per turn of the event loop."""
_SLOTS = 1_024
"""Parts of the identifiers that can have different masters."""


class GatekeeperCounters(OutgoingCounters):
    """Counters of a gatekeeper's link since its start."""

    sent: int = 0
    """Verdicts sent to a master."""
    moved: int = 0
    """Verdicts for another master than the one they belong to, which was not connected."""
    batches: int = 0
    """Batches sent."""
    dropped: dict[str, int] = field(default_factory=lambda: {"no_master": 0, "queue_full": 0, "too_long": 0})
    """Verdicts dropped: no master was connected, a queue was full, or the identifier has over 255 bytes."""
    controls: int = 0
    """Controls obeyed."""
    malformed: int = 0
    """Malformed control messages; dropped."""


class ControlHandler(Protocol):
    """The receiver of controls: a gatekeeper, or a wrapper that locks around one."""

    def obey(self, control: DelayUntil, /, *, now: float) -> None:
        """Hold an identifier until a release time; the control was received at `now`."""
        ...


class GatekeeperLink:
    """The sockets of a gatekeeper. Give its `account` to the `Gatekeeper`, and the gatekeeper to its `attach`.

    `address` is the master's (see `headgate.link.sockets.endpoints`), or those of several; they need not be running
    yet. `domains` are those that this gatekeeper has traffic for. `shard` says what belongs to one of several masters;
    all gatekeepers use the same. If a master is slow, at most `max_queue` verdicts are queued here, and as many
    messages in ZeroMQ, at most 500. The first verdict of a batch waits `batch_delay` seconds for more. Call
    `start` (with an event loop) or `start_thread` in the process that created the link. `clock` returns the wall-clock
    time at which controls are received. An ``inproc://`` address needs the `context` of its master. With `keys`, those
    for all masters or for each of them in order, both sides authenticate by CURVE. `log` receives a line about failed
    handshakes, once. Raises `ConfigurationError` for an invalid address, for one that is listed twice, for another
    number of keys, and for another `shard`.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        domains: Iterable[str],
        *,
        shard: Shard = "domain",
        max_queue: int = 10_000,
        batch_delay: float = BATCH_DELAY,
        keys: ClientKeys | Sequence[ClientKeys | None] | None = None,
        clock: Callable[[], float] = time.time,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
        log: Log = log_warning,
    ) -> None:
        fail_if(shard not in get_args(Shard), f"invalid shard {shard!r}; expected one of {', '.join(get_args(Shard))}")
        self.counters = GatekeeperCounters()
        """The counters since the start."""
        self._shards_identifiers = shard == "identifier"
        self._max_queue = max_queue
        self._batch_delay = batch_delay
        self._clock = clock
        self._waiting: deque[Accounting] = deque()
        self._handler: ControlHandler | None = None
        self._loop: asyncio.AbstractEventLoop
        self._flush_timer: asyncio.TimerHandle | None = None
        self._driver: LoopDriver | None = None
        self._watchers: list[LoopDriver] = []
        self._thread: threading.Thread | None = None
        self._asleep = self._is_closed = False
        self._topics = {name: topic(name) for name in domains}
        self._own_context = context is None
        self._context = zmq.Context() if context is None else context
        self._masters: dict[str, MasterConnection] = {}
        try:
            self._connect([address] if isinstance(address, str) else address, keys, log)
        except BaseException:
            self._close_sockets()
            raise

    def _connect(
        self, addresses: Sequence[str], keys: ClientKeys | Sequence[ClientKeys | None] | None, log: Log
    ) -> None:
        """Connect to all masters."""
        fail_if(not addresses, "no master is listed; list at least one address")
        for address, own_keys in zip(addresses, keys_of_masters(keys, len(addresses)), strict=True):
            name = endpoints(address).accounting
            fail_if(name in self._masters, f"master {address!r} is listed twice; list each master once")
            self._masters[name] = master = MasterConnection(
                self._context, address, counters=self.counters, queue=self._max_queue, keys=own_keys, log=log
            )
            for prefix in self._topics.values():
                master.subscribe_domain(prefix)
        self._owners = Owners(self._masters)
        for master in self._masters.values():
            master.announce(self._owners.digest + (b"i" if self._shards_identifiers else b"d"))

    @property
    def connections(self) -> Iterable[MasterConnection]:
        """The connections to all masters."""
        return self._masters.values()

    @property
    def has_master(self) -> bool:
        """Whether a master is subscribed to accounting."""
        return any(master.is_subscribed for master in self._masters.values())

    @property
    def has_all_masters(self) -> bool:
        """Whether all masters are connected, so that each domain has the owner that it keeps."""
        return all(master.is_up for master in self._masters.values())

    def lag(self, now: float) -> float:
        """Return the age of the oldest verdict that waits to be sent, in seconds."""
        return max(0.0, now - self._waiting[0].received) if self._waiting else 0.0

    def attach(self, obeys: ControlHandler) -> None:
        """Set the receiver of controls; call it before `start`, so that none is lost."""
        self._handler = obeys

    def set_domains(self, domains: Iterable[str]) -> None:
        """Replace the domains; queued verdicts are sent first. Call it in the event loop that was passed to `start`."""
        self._flush()
        before, self._topics = self._topics, {name: topic(name) for name in domains}
        for master in self._masters.values():
            for name in before.keys() - self._topics.keys():
                master.unsubscribe_domain(before[name])
            for name in self._topics.keys() - before.keys():
                master.subscribe_domain(self._topics[name])

    def account(self, accounting: Accounting, now: float) -> None:  # noqa: ARG002 - the signature of `Account`
        """Queue a verdict for the master. Never waits, never raises. The response is a control, received later."""
        waiting = self._waiting
        if len(waiting) >= self._max_queue:
            self.counters.dropped["queue_full"] += 1
            return
        waiting.append(accounting)
        if self._asleep:
            self._asleep = False
            self._flush_after(self._batch_delay)
        elif len(waiting) == MAX_RECORDS and self._driver is not None:
            self._flush_after(0.0)

    # -- event loop and thread -----------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from an event loop until `close`."""
        self._loop = loop
        for one in (master.connections for master in self._masters.values()):
            self._watchers.append(LoopDriver(loop, one.turn, one.sockets))
        sockets = [socket for master in self._masters.values() for socket in master.sockets]
        self._driver = LoopDriver(loop, lambda: 0.0 if self.turn() else NEVER, sockets)
        self._flush_and_check()

    def start_thread(self) -> None:
        """Serve from a new thread until `close`; `account` may then be called from any thread."""
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="headgate-link", daemon=True)
        self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self.start(loop)
        loop.run_forever()
        self._close_sockets()
        loop.close()

    def _flush_after(self, seconds: float) -> None:
        if self._thread is None:
            self._schedule_flush(seconds)
        else:
            with suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(self._schedule_flush, seconds)

    def _schedule_flush(self, seconds: float) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._flush_timer = self._loop.call_later(seconds, self._flush_and_check)

    def _flush_and_check(self) -> None:
        self._flush_timer = None
        self._asleep = True  # first, because another thread may queue a verdict at any time
        self._flush()
        # Sending may have consumed the event of a subscription.
        if self._driver is not None and any(master.has_subscription for master in self._masters.values()):
            self._driver.wake()

    def close(self) -> None:
        """Stop the thread or leave the loop, and close the sockets; drop queued verdicts. Can be called twice."""
        if self._thread is None:
            self._close_sockets()
        elif self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _close_sockets(self) -> None:
        if self._is_closed:
            return
        self._is_closed, self._asleep = True, False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        for driver in (self._driver, *self._watchers):
            if driver is not None:
                driver.close()
        for master in self._masters.values():
            master.close()
        if self._own_context:
            self._context.term()
        self._driver = None

    def turn(self) -> bool:
        """Receive a limited number of controls and subscriptions; return whether more are waiting."""
        more = False
        for master in self._masters.values():
            more |= master.receive_controls(_MAX_MESSAGES, self._obey)
            if master.has_subscription:
                more |= master.receive_subscriptions(_MAX_MESSAGES)
                self._owners.known.clear()
        return more

    # -- accounting ----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send all queued verdicts, each to its owner and in the encoding that it reads."""
        waiting, topics, counters = self._waiting, self._topics, self.counters
        batches: dict[tuple[MasterConnection, bytes], list[AccountingRecord]] = {}
        for _ in range(len(waiting)):
            accounting = waiting.popleft()
            domain_topic = topics.get(accounting.domain)
            master, is_moved = (None, False) if domain_topic is None else self._owner(accounting, domain_topic)
            if is_moved:
                counters.moved += 1
            if master is None or domain_topic is None:
                counters.dropped["no_master"] += 1
            elif len(accounting.identifier) > MAX_CONTROL_FRAME:
                counters.dropped["too_long"] += 1
            elif master.reads_batches:
                batches.setdefault((master, domain_topic), []).append(to_record(accounting))
            else:
                *frames, loginfo = encode_accounting(accounting)
                self._send(master, [*frames, loginfo[:MAX_LOGINFO_SIZE]], 1)
        for (master, domain_topic), records in batches.items():
            for start in range(0, len(records), MAX_RECORDS):
                piece = records[start : start + MAX_RECORDS]
                counters.batches += self._send(master, [BATCH + domain_topic, encode_batch(piece)], len(piece))

    def owner(self, domain: str, identifier: bytes) -> str:
        """Return the address of the connected master of an identifier in a domain; empty without one."""
        accounting = Accounting(domain, Status.ACCEPTED, identifier, 0.0, 0.0)
        master, _ = self._owner(accounting, topic(domain))
        return "" if master is None else master.address

    def _owner(self, accounting: Accounting, domain_topic: bytes) -> tuple[MasterConnection | None, bool]:
        """Return the master for a verdict, None if none is connected; and whether another one that is not owns it."""
        if self._shards_identifiers:
            return self._owners.find(b"%d" % (crc32(accounting.identifier, crc32(domain_topic)) % _SLOTS))
        return self._owners.find(domain_topic)

    def _send(self, master: MasterConnection, frames: list[bytes], records: int) -> bool:
        """Send a message, or count its records as dropped; return whether it was sent."""
        if not master.send(frames):
            self.counters.dropped["queue_full"] += records
            return False
        self.counters.sent += records
        return True

    # -- controls ------------------------------------------------------------------------------------------------

    def _obey(self, frames: list[bytes]) -> None:
        try:
            control = decode_control([public_topic(frames[0]), *frames[1:]])
        except WireError:
            self.counters.malformed += 1
            return
        if control.domain not in self._topics:
            self.counters.malformed += 1
            return
        self.counters.controls += 1
        if self._handler is not None:
            self._handler.obey(control, now=self._clock())
