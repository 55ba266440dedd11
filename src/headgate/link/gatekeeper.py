"""A gatekeeper's link to its master: it sends accounting and receives controls.

This module does not know requests. "Both are physically outgoing from the gatekeeper": an XPUB socket, which receives
the subscriptions of masters (whether one is connected, and whether it reads batches), and a SUB socket that subscribes
to the domains. No call waits for a master: messages that cannot be sent at once are dropped and counted ("accounting
messages from the gatekeepers will be dropped", smockron.txt, Fault-Tolerance).
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import msgspec
import zmq

from headgate.errors import WireError
from headgate.limit.messages import MAX_CONTROL_FRAME, Accounting, DelayUntil, decode_control, encode_accounting, topic
from headgate.link.batch import MAX_LOGINFO_SIZE, MAX_RECORDS, AccountingRecord, batch_topic, encode_batch, to_record
from headgate.link.sockets import (
    NOBLOCK,
    SNDMORE,
    close_sockets,
    connect_pair,
    file_descriptor,
    has_message,
    open_socket,
)
from headgate.link.subscriptions import AccountingMode, Encoding, Subscriptions


class GatekeeperCounters(msgspec.Struct):
    """Counters of a gatekeeper's link since its start."""

    sent: int = 0
    """Verdicts sent to a master."""
    batches: int = 0
    """Batches sent."""
    unheard: int = 0
    """Verdicts dropped because no master is subscribed."""
    dropped: int = 0
    """Verdicts dropped because a queue is full: the master is slow, or the link was not started."""
    too_long: int = 0
    """Verdicts dropped because the identifier is too long for a control message."""
    controls: int = 0
    """Controls obeyed."""
    malformed: int = 0
    """Malformed control messages; dropped."""


_BATCH_DELAY = 0.005
"""Seconds that the first verdict of a batch waits for more."""
_MAX_MESSAGES = 256
"""Messages received per turn of the event loop."""
_MAX_FRAMES = 8
_MAX_CONTROL_SIZE = 4_096
_MAX_QUEUED_BATCHES = 256


class ControlHandler(Protocol):
    """The receiver of controls: a gatekeeper, or a wrapper that locks around one."""

    def obey(self, control: DelayUntil, /, *, now: float) -> None:
        """Hold an identifier until a release time; the control was received at `now`."""
        ...


class GatekeeperLink:
    """The two sockets of a gatekeeper. Give its `account` to the `Gatekeeper`, and the gatekeeper to its `attach`.

    `address` is the master's (see `headgate.link.sockets.endpoints`), which need not be running. `domains` are those
    that this gatekeeper has traffic for. If the master is slow, at most `max_queue` verdicts are queued here, and as
    many in ZeroMQ. Call `start` (with an event loop) or `start_thread` in the process that created the link. `clock`
    returns the wall-clock time at which controls are received. An ``inproc://`` address needs the `context` of its
    master. Raises `ConfigurationError` for an invalid address.
    """

    def __init__(
        self,
        address: str,
        domains: Iterable[str],
        *,
        accounting: AccountingMode = "auto",
        max_queue: int = 10_000,
        clock: Callable[[], float] = time.time,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
    ) -> None:
        self.counters = GatekeeperCounters()
        """The counters since the start."""
        self._subscriptions = Subscriptions(domains, accounting)
        self._max_queue = max_queue
        self._clock = clock
        self._waiting: deque[Accounting] = deque()
        self._handler: ControlHandler | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._again: asyncio.Handle | None = None
        self._thread: threading.Thread | None = None
        self._asleep = self._stopping = False
        self._own_context = context is None
        self._context = zmq.Context() if context is None else context
        self._accounting = open_socket(self._context, zmq.XPUB, queue=max_queue, largest=_MAX_CONTROL_SIZE)
        self._control = open_socket(self._context, zmq.SUB, queue=max_queue, largest=_MAX_CONTROL_SIZE)
        # Report a full queue, so that it can be counted.
        self._accounting.setsockopt(zmq.XPUB_NODROP, 1)
        # Report each peer's subscriptions and their end, so that those of a master that stops are removed.
        self._accounting.setsockopt(zmq.XPUB_VERBOSER, 1)
        self._accounting.setsockopt(zmq.IMMEDIATE, 1)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for name in self._subscriptions.encodings:
            self._control.subscribe(topic(name))
        try:
            self.endpoints = connect_pair(self._accounting, self._control, address)
            """What the two sockets are connected to."""
        except BaseException:
            self._close_sockets()
            raise

    @property
    def has_master(self) -> bool:
        """Whether a master subscribes to every domain."""
        return "unheard" not in self._subscriptions.encodings.values()

    def attach(self, obeys: ControlHandler) -> None:
        """Set the receiver of controls; call it before `start`, so that none is lost."""
        self._handler = obeys

    def set_domains(self, domains: Iterable[str]) -> None:
        """Replace the domains; queued verdicts are sent first.

        Call it in the event loop that was passed to `start`.
        """
        self._flush()
        before = set(self._subscriptions.encodings)
        self._subscriptions.set_domains(domains)
        for name in before - set(self._subscriptions.encodings):
            self._control.unsubscribe(topic(name))
        for name in set(self._subscriptions.encodings) - before:
            self._control.subscribe(topic(name))

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
            self._set_alarm(0.0)

    # -- event loop and thread -----------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from an event loop until `close`."""
        self._loop = loop
        for socket in (self._accounting, self._control):
            loop.add_reader(file_descriptor(socket), self._wake)
        self._wake()
        self._flush_and_check()

    def start_thread(self) -> None:
        """Serve from a new thread until `close`; `account` may then be called from any thread."""
        self._thread = threading.Thread(target=self._run, name="headgate-link", daemon=True)
        self._thread.start()

    def _schedule_flush(self) -> None:
        """Have the queued verdicts sent."""
        if self._loop is None:
            with suppress(BlockingIOError):
                os.write(self._wake_write, b"\0")
        else:
            self._set_alarm(_BATCH_DELAY if "batch" in self._subscriptions.encodings.values() else 0.0)

    def _set_alarm(self, seconds: float) -> None:
        assert self._loop is not None
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_later(seconds, self._flush_and_check)

    def _flush_and_check(self) -> None:
        self._alarm = None
        self._flush()
        self._asleep = True
        if has_message(self._accounting):  # sending may have consumed the event of a subscription
            self._wake()

    def _wake(self) -> None:
        """Run one turn in the event loop, and schedule the next if messages are waiting."""
        assert self._loop is not None
        if self._again is not None:
            self._again.cancel()
        # A ZeroMQ descriptor signals new messages once, not for as long as messages are waiting.
        self._again = self._loop.call_soon(self._wake) if self.turn() else None

    def _run(self) -> None:
        poller = zmq.Poller()
        for source in (self._accounting, self._control, self._wake_read):
            poller.register(source, zmq.POLLIN)
        while not self._stopping:
            more = self.turn()
            self._asleep = not self._waiting
            if self._waiting:  # checked again: a verdict may have been queued in between
                self._asleep = False
            poller.poll(0 if more else None if self._asleep else int(_BATCH_DELAY * 1_000))
            woken = False
            with suppress(BlockingIOError):
                woken = bool(os.read(self._wake_read, 4_096))
            if not woken:  # after a pause, the first verdict waits for more
                self._flush()
        self._close_sockets()

    def close(self) -> None:
        """Stop the thread or leave the loop, and close the sockets; drop queued verdicts. Can be called twice."""
        self._asleep = False
        for handle in (self._alarm, self._again):
            if handle is not None:
                handle.cancel()
        if self._thread is None:
            self._close_sockets()
        elif not self._stopping:
            self._stopping = True
            os.write(self._wake_write, b"\0")
            self._thread.join()

    def _close_sockets(self) -> None:
        if self._accounting.closed:
            return
        close_sockets((self._accounting, self._control), self._loop)
        if self._own_context:
            self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def turn(self) -> bool:
        """Receive a limited number of controls and subscriptions; return whether more are waiting."""
        return self._receive_controls(_MAX_MESSAGES) | self._receive_subscriptions(_MAX_MESSAGES)

    # -- accounting ----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send all queued verdicts, each in the encoding of its domain."""
        waiting, encodings = self._waiting, self._subscriptions.encodings
        batches: dict[str, list[AccountingRecord]] = {name: [] for name, how in encodings.items() if how == "batch"}
        for _ in range(len(waiting)):
            accounting = waiting.popleft()
            records = batches.get(accounting.domain)
            if records is not None and len(accounting.identifier) <= MAX_CONTROL_FRAME:
                records.append(to_record(accounting))
            else:
                self._send_frames(accounting, encodings.get(accounting.domain, "unheard"))
        for domain, records in batches.items():
            for start in range(0, len(records), MAX_RECORDS):
                self._send_batch(domain, records[start : start + MAX_RECORDS])

    def _send_frames(self, accounting: Accounting, encoding: Encoding) -> None:
        """Send a verdict as frames, or count why it is not sent."""
        if encoding == "unheard":
            self.counters.unheard += 1
        elif len(accounting.identifier) > MAX_CONTROL_FRAME:
            self.counters.too_long += 1
        else:
            *frames, loginfo = encode_accounting(accounting)
            self._send([*frames, loginfo[:MAX_LOGINFO_SIZE]], records=1)

    def _send_batch(self, domain: str, records: list[AccountingRecord]) -> None:
        self.counters.batches += self._send([batch_topic(domain), encode_batch(records)], records=len(records))

    def _send(self, frames: list[bytes], *, records: int) -> bool:
        """Send a message, or drop it if the queue is full; return whether it was sent."""
        send = self._accounting.send
        try:
            for frame in frames[:-1]:
                send(frame, SNDMORE)
            send(frames[-1], NOBLOCK)
        except zmq.Again:  # raised at the first frame only: ZeroMQ has room for a whole message, or for none
            self.counters.dropped += records
            return False
        self.counters.sent += records
        return True

    def _receive_subscriptions(self, limit: int) -> bool:
        """Receive up to `limit` subscriptions; return whether more may be waiting."""
        if not has_message(self._accounting):
            return False
        try:
            for _ in range(limit):
                self._subscriptions.update(self._accounting.recv(NOBLOCK))
                # A batch is many records: the queue holds fewer of them.
                batch = "batch" in self._subscriptions.encodings.values()
                queue = min(self._max_queue, _MAX_QUEUED_BATCHES) if batch else self._max_queue
                self._accounting.setsockopt(zmq.SNDHWM, queue)
        except zmq.Again:
            return False
        return True

    # -- controls ------------------------------------------------------------------------------------------------

    def _receive_controls(self, limit: int) -> bool:
        """Receive up to `limit` controls; return whether more may be waiting."""
        if not has_message(self._control):
            return False
        try:
            for _ in range(limit):
                frames: list[bytes] = []
                more = True
                while more:
                    part = self._control.recv(NOBLOCK, copy=False)
                    more = part.more
                    if len(frames) < _MAX_FRAMES:
                        frames.append(part.bytes)
                self._obey(frames)
        except zmq.Again:
            return False
        return True

    def _obey(self, frames: list[bytes]) -> None:
        try:
            control = decode_control(frames)
        except WireError:
            self.counters.malformed += 1
            return
        if control.domain not in self._subscriptions.encodings:
            self.counters.malformed += 1
            return
        self.counters.controls += 1
        if self._handler is not None:
            self._handler.obey(control, now=self._clock())
