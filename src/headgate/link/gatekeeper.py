"""A gatekeeper's link to its masters: it sends accounting and receives controls.

This module does not know requests. Controls come from all masters. The accounting of a domain goes to one of those that
are connected ("all messages for the same domain go to the same master", smockron.txt, Protocol): its owner by
rendezvous hashing, as in all other gatekeepers and routers with these masters. No call waits for a master: messages
that cannot be sent at once are dropped and counted ("accounting messages from the gatekeepers will be dropped",
Fault-Tolerance).
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import zmq

from headgate.errors import ConfigurationError, WireError
from headgate.limit.messages import MAX_CONTROL_FRAME, Accounting, DelayUntil, decode_control, encode_accounting, topic
from headgate.limit.sharding import Sharding, sharding_item
from headgate.link.batch import MAX_LOGINFO_SIZE, MAX_RECORDS, AccountingRecord, batch_topic, encode_batch, to_record
from headgate.link.connections import Log, log_warning
from headgate.link.curve import ClientKeys, keys_of_masters
from headgate.link.gatekeeper_counters import GatekeeperCounters
from headgate.link.heartbeats import Heartbeats
from headgate.link.loop_driver import LoopDriver
from headgate.link.master_connection import MasterConnection
from headgate.link.recent_accounting import RecentAccounting
from headgate.link.resender import Resender
from headgate.link.sockets import endpoints
from headgate.link.subscriptions import AccountingMode, Encoding, Subscriptions
from headgate.link.wake_pipe import WakePipe
from headgate.release import ASAP, NEVER

_BATCH_DELAY = 0.005
"""Seconds that the first verdict of a batch waits for more."""
_MAX_MESSAGES = 256
"""Messages received per turn of the event loop."""
_MAX_QUEUED = 1_000
"""Messages that ZeroMQ queues for each master, set once: see docs/decisions/bus.md."""
_RESEND_PAUSE = 0.02
"""Seconds between two batches that are sent again, so that a master with many gatekeepers keeps up with new ones."""


class _Route(NamedTuple):
    """How the accounting of one domain is sent."""

    encoding: Encoding
    master: MasterConnection | None
    """The owner of the domain; None if no master reads its accounting."""


_NO_ROUTE = _Route("unheard", None)


class ControlHandler(Protocol):
    """The receiver of controls: a gatekeeper, or a wrapper that locks around one."""

    def obey(self, control: DelayUntil, /, *, now: float) -> None:
        """Hold an identifier until a release time; the control was received at `now`."""
        ...


class GatekeeperLink:
    """The sockets of a gatekeeper. Give its `account` to the `Gatekeeper`, and the gatekeeper to its `attach`.

    `address` is the master's (see `headgate.link.sockets.endpoints`), or those of several; they need not be running
    yet. `domains` are those that this gatekeeper has traffic for. If a master is slow, at most `max_queue` verdicts are
    queued here, and as many messages in ZeroMQ, at most a thousand. Call `start` (with an event loop) or `start_thread`
    in the process that created the link. `clock` returns the wall-clock time at which controls are received. An
    ``inproc://`` address needs the `context` of its master. With `keys`, those for all masters or for each of them in
    order, both sides authenticate by CURVE. `log` receives a line about failed handshakes, once. Raises
    `ConfigurationError` for an invalid address, for one that is listed twice, and for another number of keys.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        domains: Iterable[str],
        *,
        accounting: AccountingMode = "auto",
        max_queue: int = 10_000,
        keys: ClientKeys | Sequence[ClientKeys | None] | None = None,
        windows: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.time,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
        log: Log = log_warning,
    ) -> None:
        self.counters = GatekeeperCounters()
        """The counters since the start."""
        self._max_queue = max_queue
        self._clock = clock
        self._waiting: deque[Accounting] = deque()
        self._handler: ControlHandler | None = None
        self._held: Callable[..., float] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._driver: LoopDriver | None = None
        self._watchers: list[LoopDriver] = []
        self._log = log
        self._thread: threading.Thread | None = None
        self._asleep = self._stopping = False
        names = list(domains)
        self._recent = RecentAccounting(names, windows)
        self._resender: Resender[MasterConnection] = Resender(self._recent)
        self._resend_at = NEVER
        self._routes = dict.fromkeys(names, _NO_ROUTE)
        self._sends_batches = False
        self._own_context = context is None
        self._context = zmq.Context() if context is None else context
        self._wake_pipe = WakePipe()
        self._masters: dict[str, MasterConnection] = {}
        self._sharding = Sharding(())
        try:
            self._connect([address] if isinstance(address, str) else address, keys, names, accounting)
        except BaseException:
            self._close_sockets()
            raise

    def _connect(
        self,
        addresses: Sequence[str],
        keys: ClientKeys | Sequence[ClientKeys | None] | None,
        domains: Sequence[str],
        accounting: AccountingMode,
    ) -> None:
        """Connect to all masters."""
        if not addresses:
            raise ConfigurationError("no master is listed; list at least one address")
        for address, own_keys in zip(addresses, keys_of_masters(keys, len(addresses)), strict=True):
            name = endpoints(address).accounting
            if name in self._masters:
                raise ConfigurationError(f"master {address!r} is listed twice; list each master once")
            self._masters[name] = master = MasterConnection(
                self._context,
                address,
                Subscriptions(domains, accounting),
                queue=min(self._max_queue, _MAX_QUEUED),
                heartbeats=Heartbeats(),
                counters=self.counters,
                keys=own_keys,
                log=self._log,
            )
            for domain in domains:
                master.subscribe(topic(domain))
        self._sharding = Sharding(self._masters)

    @property
    def connections(self) -> Iterable[MasterConnection]:
        """The connections to all masters."""
        return self._masters.values()

    @property
    def has_master(self) -> bool:
        """Whether a master subscribes to every domain."""
        return _NO_ROUTE not in self._routes.values()

    @property
    def has_all_masters(self) -> bool:
        """Whether all masters are connected, so that each domain has the owner that it keeps."""
        return all(master.is_up for master in self._masters.values())

    def attach(self, obeys: ControlHandler, *, held: Callable[..., float] | None = None) -> None:
        """Set the receiver of controls; call it before `start`, so that none is lost.

        With `held`, that of the gatekeeper, holds in force are sent again with the verdicts.
        """
        self._handler, self._held = obeys, held

    def set_domains(self, domains: Iterable[str], windows: Mapping[str, float] | None = None) -> None:
        """Replace the domains and the seconds for which their verdicts are remembered; queued verdicts are sent first.

        Call it in the event loop that was passed to `start`.
        """
        self._flush()
        before, after = self._routes, dict.fromkeys(domains, _NO_ROUTE)
        for master in self._masters.values():
            master.subscriptions.set_domains(after)
            for name in before.keys() - after.keys():
                master.unsubscribe(topic(name))
            for name in after.keys() - before.keys():
                master.subscribe(topic(name))
        self._routes = after
        self._recent.set_domains(after, windows)
        self._choose_routes()

    def _choose_routes(self, arrived: MasterConnection | None = None) -> None:
        """Choose the owner of each domain among the masters that read its accounting, and its encoding.

        `arrived` is a master that has just subscribed.
        """
        for domain in self._routes:
            encodings = {name: master.subscriptions.encodings[domain] for name, master in self._masters.items()}
            readers = {name: encoding for name, encoding in encodings.items() if encoding != "unheard"}
            owner = self._sharding.owner(sharding_item(domain), readers)
            self._routes[domain] = _NO_ROUTE if owner is None else _Route(readers[owner], self._masters[owner])
        self._sends_batches = any(route.encoding == "batch" for route in self._routes.values())
        masters = self._masters.values()
        self._resender.update(
            {domain: route.master for domain, route in self._routes.items()},
            {master: master.subscriptions.announcements for master in masters},
            arrived=arrived,
            now=self._clock(),
        )
        self._resend_at = min(self._resend_at, time.monotonic())

    def account(self, accounting: Accounting, now: float) -> None:  # noqa: ARG002 - the signature of `Account`
        """Queue a verdict for the master. Never waits, never raises. The response is a control, received later."""
        waiting = self._waiting
        if len(waiting) >= self._max_queue:
            self.counters.dropped += 1
            return
        waiting.append(accounting)
        if self._asleep:
            self._asleep = False
            self._schedule_flush()
        elif len(waiting) == MAX_RECORDS and self._loop is not None:
            self._flush_after(0.0)

    # -- event loop and thread -----------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from an event loop until `close`."""
        self._loop = loop
        for one in (master.connections for master in self._masters.values()):
            self._watchers.append(LoopDriver(loop, one.turn, one.sockets))
        sockets = [socket for master in self._masters.values() for socket in master.sockets]
        self._driver = LoopDriver(loop, self._turn_and_timeout, sockets)
        self._flush_and_check()

    def start_thread(self) -> None:
        """Serve from a new thread until `close`; `account` may then be called from any thread."""
        self._thread = threading.Thread(target=self._run, name="headgate-link", daemon=True)
        self._thread.start()

    def _schedule_flush(self) -> None:
        """Have the queued verdicts sent."""
        if self._loop is None:
            self._wake_pipe.wake()
        else:
            self._flush_after(_BATCH_DELAY if self._sends_batches else 0.0)

    def _flush_after(self, seconds: float) -> None:
        assert self._loop is not None
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._flush_timer = self._loop.call_later(seconds, self._flush_and_check)

    def _flush_and_check(self) -> None:
        assert self._driver is not None
        self._flush_timer = None
        self._flush()
        self._asleep = True
        # Sending may have consumed the event of a subscription.
        if any(master.has_subscription for master in self._masters.values()):
            self._driver.wake()

    def _turn_and_timeout(self) -> float:
        """Run one turn; return the seconds until the next one."""
        return 0.0 if self.turn() else max(0.0, self._resend_at - time.monotonic())

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_pipe.descriptor, zmq.POLLIN)
        for master in self._masters.values():
            for socket in (*master.sockets, *master.connections.sockets):
                poller.register(socket, zmq.POLLIN)
        while not self._stopping:
            more = self.turn()
            self._asleep = not self._waiting
            if self._waiting:  # checked again: a verdict may have been queued in between
                self._asleep = False
            pause = min(master.connections.turn() for master in self._masters.values())
            pause = min(pause, max(0.0, self._resend_at - time.monotonic()))
            if not self._asleep:
                pause = min(pause, _BATCH_DELAY)
            poller.poll(0 if more else None if pause == NEVER else math.ceil(pause * 1_000))
            if not self._wake_pipe.clear():  # after a pause, the first verdict waits for more
                self._flush()
        self._close_sockets()

    def close(self) -> None:
        """Stop the thread or leave the loop, and close the sockets; drop queued verdicts. Can be called twice."""
        self._asleep = False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        if self._thread is None:
            self._close_sockets()
        elif not self._stopping:
            self._stopping = True
            self._wake_pipe.wake()
            self._thread.join()

    def _close_sockets(self) -> None:
        if self._wake_pipe.is_closed:
            return
        for driver in (self._driver, *self._watchers):
            if driver is not None:
                driver.close()
        for master in self._masters.values():
            master.close()
        if self._own_context:
            self._context.term()
        self._wake_pipe.close()

    def turn(self) -> bool:
        """Receive a limited number of controls and subscriptions; return whether more are waiting."""
        more = False
        for master in self._masters.values():
            more |= master.receive_controls(_MAX_MESSAGES, self._obey)
            if master.has_subscription:
                more |= self._receive_subscriptions(master)
        self._resend()
        return more

    def _receive_subscriptions(self, master: MasterConnection) -> bool:
        arrivals = master.subscriptions.arrivals
        more = master.receive_subscriptions(_MAX_MESSAGES)
        self._choose_routes(arrived=master if master.subscriptions.arrivals > arrivals else None)
        return more

    # -- accounting ----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send all queued verdicts, each to the owner of its domain and in the encoding that it reads."""
        waiting, routes = self._waiting, self._routes
        batches: dict[str, list[AccountingRecord]] = {
            name: [] for name, route in routes.items() if route.encoding == "batch"
        }
        verdicts = [waiting.popleft() for _ in range(len(waiting))]
        self._recent.extend(verdicts)
        for accounting in verdicts:
            records = batches.get(accounting.domain)
            if records is not None and len(accounting.identifier) <= MAX_CONTROL_FRAME:
                records.append(to_record(accounting))
            else:
                self._send_frames(accounting, routes.get(accounting.domain, _NO_ROUTE).master)
        for domain, records in batches.items():
            master = routes[domain].master
            for start in range(0, len(records), MAX_RECORDS):
                piece = records[start : start + MAX_RECORDS]
                self.counters.batches += self._send(master, [batch_topic(domain), encode_batch(piece)], len(piece))

    def _send_frames(self, accounting: Accounting, master: MasterConnection | None) -> None:
        """Send a verdict as frames, or count why it is not sent."""
        if len(accounting.identifier) > MAX_CONTROL_FRAME and master is not None:
            self.counters.too_long += 1
        else:
            *frames, loginfo = encode_accounting(accounting)
            self._send(master, [*frames, loginfo[:MAX_LOGINFO_SIZE]], 1)

    def _send(self, master: MasterConnection | None, frames: list[bytes], records: int) -> bool:
        """Send a message, or count its records as dropped; return whether it was sent."""
        if master is None:
            self.counters.unheard += records
            return False
        if not master.send(frames):
            self.counters.dropped += records
            return False
        self.counters.sent += records
        return True

    def _resend(self) -> None:
        """Send the next batch again, if there is one and it is due; one that does not fit the queue stays the next."""
        moment = time.monotonic()
        if moment < self._resend_at:
            return
        held, now = self._held, self._clock()
        batch = self._resender.next_batch(lambda *of: held(*of, now=now) if held is not None else ASAP)
        if batch is None:
            self._resend_at = NEVER
            return
        master, frames, records = batch
        if master.send(frames):
            self._resender.sent()
            self.counters.resent += records
        self._resend_at = moment + _RESEND_PAUSE

    # -- controls ------------------------------------------------------------------------------------------------

    def _obey(self, frames: list[bytes]) -> None:
        try:
            control = decode_control(frames)
        except WireError:
            self.counters.malformed += 1
            return
        if control.domain not in self._routes:
            self.counters.malformed += 1
            return
        self.counters.controls += 1
        if self._handler is not None:
            self._handler.obey(control, now=self._clock())
