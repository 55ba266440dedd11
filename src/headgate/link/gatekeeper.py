"""The bus side of a gatekeeper: accounting out, controls in.

This file knows nothing of requests. "Both are physically outgoing from the gatekeeper": an XPUB socket, whose peer's
subscriptions say whether a master is there and whether it reads batches, and a SUB socket that hears the domains.
Nothing here waits for a master: what cannot be sent at once is dropped and counted ("accounting messages from the
gatekeepers will be dropped", smockron.txt, Fault-Tolerance).
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

import zmq

from headgate.errors import WireError
from headgate.limit.accounting import Accounting, DelayUntil
from headgate.limit.wire import MAX_CONTROL_FRAME, decode_control, encode_accounting, topic
from headgate.link.batch import MOST_LOGINFO, MOST_RECORDS, Record, batch_topic, encode_batch, record_of
from headgate.link.counters import GatekeeperCounters
from headgate.link.hearing import AccountingMode, Hearing
from headgate.link.sockets import NOBLOCK, SNDMORE, connected, descriptor, let_go, opened

__all__ = ["GatekeeperLink", "Obeys"]

_LINGER = 0.005
_MOST_A_TURN = 256
_MOST_FRAMES = 8
_LARGEST_CONTROL = 4_096
_BATCH_QUEUE = 256


class Obeys(Protocol):
    """Whom controls are for: a gatekeeper, or something that locks around one."""

    def obey(self, control: DelayUntil, /) -> None:
        """Hold an identifier until a release time."""
        ...


class GatekeeperLink:
    """A gatekeeper's two sockets; its `account` is what a `Gatekeeper` is given, its controls go where `attach` says.

    `address` is the master's (see `headgate.link.address.endpoints`), which need not be there. `domains` are those
    this gatekeeper has traffic for. At most `max_queue` verdicts wait here, and as many in ZeroMQ, when the master is
    slow. One of `start` (an event loop) and `start_thread` drives it, in the process that made it. An ``inproc://``
    address needs the `context` its master uses. Raises `ConfigurationError` for an address that is none.
    """

    def __init__(
        self,
        address: str,
        domains: Iterable[str],
        *,
        accounting: AccountingMode = "auto",
        max_queue: int = 10_000,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
    ) -> None:
        self.counters = GatekeeperCounters()
        """What happened so far."""
        self._hearing = Hearing(domains, accounting)
        self._max_queue = max_queue
        self._waiting: deque[Accounting] = deque()
        self._obeys: Obeys | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._again: asyncio.Handle | None = None
        self._thread: threading.Thread | None = None
        self._asleep = self._stopping = False
        self._own_context = context is None
        self._context = zmq.Context() if context is None else context
        self._accounting = opened(self._context, zmq.XPUB, queue=max_queue, largest=_LARGEST_CONTROL)
        self._control = opened(self._context, zmq.SUB, queue=max_queue, largest=_LARGEST_CONTROL)
        # A full queue is told, so that it can be counted.
        self._accounting.setsockopt(zmq.XPUB_NODROP, 1)
        # Each peer's subscriptions are told, and their end: a master that goes takes what it could read with it.
        self._accounting.setsockopt(zmq.XPUB_VERBOSER, 1)
        self._accounting.setsockopt(zmq.IMMEDIATE, 1)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for name in self._hearing.ways:
            self._control.subscribe(topic(name))
        try:
            self.endpoints = connected(self._accounting, self._control, address)
            """What the two sockets are connected to."""
        except BaseException:
            self._close_sockets()
            raise

    @property
    def heard(self) -> bool:
        """Whether a master listens to every domain now."""
        return "unheard" not in self._hearing.ways.values()

    def attach(self, obeys: Obeys) -> None:
        """Say whom controls are for; before `start`, so that none is missed."""
        self._obeys = obeys

    def change(self, domains: Iterable[str]) -> None:
        """Carry the accounting and the controls of other domains from now on; what waits is sent first.

        To be called where `start` was: in the event loop.
        """
        self._flush()
        before = set(self._hearing.ways)
        self._hearing.change(domains)
        for name in before - set(self._hearing.ways):
            self._control.unsubscribe(topic(name))
        for name in set(self._hearing.ways) - before:
            self._control.subscribe(topic(name))

    def account(self, accounting: Accounting, now: float) -> None:  # noqa: ARG002 - as every place accounting goes to
        """Take a verdict to the master, soon; never waits, never raises. The answer comes as a control, later."""
        waiting = self._waiting
        if len(waiting) >= self._max_queue:
            self.counters.dropped += 1
            return
        waiting.append(accounting)
        if self._asleep:
            self._asleep = False
            self._rouse()
        elif len(waiting) == MOST_RECORDS and self._loop is not None:
            self._set_alarm(0.0)

    # -- what drives it ------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work from an event loop until `close`."""
        self._loop = loop
        for socket in (self._accounting, self._control):
            loop.add_reader(descriptor(socket), self._wake)
        self._flush_and_wake()

    def start_thread(self) -> None:
        """Work from a thread of its own until `close`; `account` may then be called from any thread."""
        self._thread = threading.Thread(target=self._run, name="headgate-link", daemon=True)
        self._thread.start()

    def _rouse(self) -> None:
        """See to it that what waits is sent."""
        if self._loop is None:
            with suppress(BlockingIOError):
                os.write(self._wake_write, b"\0")
        else:
            self._set_alarm(_LINGER if "batch" in self._hearing.ways.values() else 0.0)

    def _set_alarm(self, seconds: float) -> None:
        assert self._loop is not None
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_later(seconds, self._flush_and_wake)

    def _flush_and_wake(self) -> None:
        self._alarm = None
        self._hear(_MOST_A_TURN)
        self._flush()
        self._asleep = True
        self._wake()  # sending may have swallowed the news of a subscription

    def _wake(self) -> None:
        """Take one turn in the event loop, and see to the next."""
        assert self._loop is not None
        if self._again is not None:
            self._again.cancel()
        # A ZeroMQ descriptor becomes readable once, not for as long as something waits.
        self._again = self._loop.call_soon(self._wake) if self.turn() else None

    def _run(self) -> None:
        poller = zmq.Poller()
        for source in (self._accounting, self._control, self._wake_read):
            poller.register(source, zmq.POLLIN)
        while not self._stopping:
            more = self.turn()
            self._asleep = not self._waiting
            if self._waiting:  # looked at again: a verdict may have come between the two
                self._asleep = False
            poller.poll(0 if more else None if self._asleep else int(_LINGER * 1_000))
            woken = False
            with suppress(BlockingIOError):
                woken = bool(os.read(self._wake_read, 4_096))
            if not woken:  # the first verdict in a while waits for company
                self._flush()
        self._close_sockets()

    def close(self) -> None:
        """Let go of the loop or thread and of the sockets; what waits is dropped. Twice is once."""
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
        let_go((self._accounting, self._control), self._loop)
        if self._own_context:
            self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def turn(self) -> bool:
        """Hear controls and subscriptions, within bounds; say whether more wait now."""
        return self._receive(_MOST_A_TURN) | self._hear(_MOST_A_TURN)

    # -- accounting ----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send all that waits, each the way its domain's master reads it."""
        waiting, counters = self._waiting, self.counters
        batches: dict[str, list[Record]] = {}
        for _ in range(len(waiting)):
            accounting = waiting.popleft()
            way = self._hearing.ways.get(accounting.domain, "unheard")
            if way == "unheard":
                counters.unheard += 1
            elif len(accounting.identifier) > MAX_CONTROL_FRAME:
                counters.too_long += 1
            elif way == "frames":
                *frames, loginfo = encode_accounting(accounting)
                self._send([*frames, loginfo[:MOST_LOGINFO]], records=1)
            else:
                records = batches.setdefault(accounting.domain, [])
                records.append(record_of(accounting))
                if len(records) == MOST_RECORDS:
                    self._send_batch(accounting.domain, batches.pop(accounting.domain))
        for domain, records in batches.items():
            self._send_batch(domain, records)

    def _send_batch(self, domain: str, records: list[Record]) -> None:
        self.counters.batches += self._send([batch_topic(domain), encode_batch(records)], records=len(records))

    def _send(self, frames: list[bytes], *, records: int) -> bool:
        """Send one message now or never; say which."""
        send = self._accounting.send
        try:
            for frame in frames[:-1]:
                send(frame, SNDMORE)
            send(frames[-1], NOBLOCK)
        except zmq.Again:  # only ever at the first frame: ZeroMQ has room for a whole message, or for none
            self.counters.dropped += records
            return False
        self.counters.sent += records
        return True

    def _hear(self, most: int) -> bool:
        """Take up to `most` subscriptions; say whether more may wait."""
        try:
            for _ in range(most):
                self._hearing.hear(self._accounting.recv(NOBLOCK))
                # A batch is many records: fewer of them make a queue as long.
                batch = "batch" in self._hearing.ways.values()
                queue = min(self._max_queue, _BATCH_QUEUE) if batch else self._max_queue
                self._accounting.setsockopt(zmq.SNDHWM, queue)
        except zmq.Again:
            return False
        return True

    # -- controls ------------------------------------------------------------------------------------------------

    def _receive(self, most: int) -> bool:
        """Take up to `most` controls; say whether more may wait."""
        try:
            for _ in range(most):
                frames: list[bytes] = []
                more = True
                while more:
                    part = self._control.recv(NOBLOCK, copy=False)
                    more = part.more
                    if len(frames) < _MOST_FRAMES:
                        frames.append(part.bytes)
                self._take(frames)
        except zmq.Again:
            return False
        return True

    def _take(self, frames: list[bytes]) -> None:
        try:
            control = decode_control(frames)
        except WireError:
            self.counters.malformed += 1
            return
        if control.domain not in self._hearing.ways:
            self.counters.malformed += 1
            return
        self.counters.controls += 1
        if self._obeys is not None:
            self._obeys.obey(control)
