"""The bus side of a master: accounting in, controls out.

This file knows nothing of rules. "Both are physically outgoing from the gatekeeper (bind() on the master […])": a SUB
socket that hears every topic, and an XPUB socket, which tells who subscribes, on the port after it.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec
import zmq

from headgate.errors import WireError
from headgate.limit.accounting import DelayUntil
from headgate.limit.master import Master
from headgate.limit.wire import (
    MAX_CONTROL_FRAME,
    STATUSES,
    decode_accounting,
    domain_of,
    to_milliseconds,
    topic,
)
from headgate.link.batch import BATCH, STATUS_OF, decode_batch
from headgate.link.frames import messages_in
from headgate.link.sockets import NOBLOCK, SNDMORE, bound, descriptor, opened
from headgate.release import ASAP, Status

__all__ = ["MasterCounters", "MasterLink"]

_DELAYED = Status.DELAYED
_DELAY_UNTIL = b"DELAY_UNTIL"

_QUEUE = 10_000
_LARGEST_ACCOUNTING = 256 * 1024
_LARGEST_SUBSCRIPTION = 1_024
_LONGEST_RUN = 64
_MOST_A_TURN = 256
_MOST_DIGITS = 15
_RESEND_EVERY = 0.1
_RESEND_AT_ONCE = 1_000
_RESEND_PAUSE = 0.01
_FORGET_EVERY = 1.0
_FORGET_AT_ONCE = 10_000


class MasterCounters(msgspec.Struct):
    """What a master's bus has seen since the start."""

    accounted: int = 0
    """Accounting messages and records that were read, those for unknown domains included."""
    batches: int = 0
    """Batches among them."""
    too_short: int = 0
    """Messages of fewer than five frames; dropped."""
    unknown_status: int = 0
    """Messages whose status is none of the document's; dropped."""
    bad_timestamp: int = 0
    """Messages without a finite decimal where a timestamp belongs; dropped."""
    bad_record: int = 0
    """Records of batches that are no records; dropped."""
    bad_batch: int = 0
    """Batches that cannot be read at all; dropped."""
    too_long: int = 0
    """Messages whose identifier fits no control message; dropped, so that nothing is kept that cannot be said."""
    excess_frames: int = 0
    """Frames from the seventh on; ignored."""
    controls: int = 0
    """Controls published."""
    resent: int = 0
    """Controls published again for a new subscription."""
    subscriptions: int = 0
    """Subscriptions heard."""


class MasterLink:
    """A master's two sockets, bound from the start.

    `address` names the accounting port (see `headgate.link.address.endpoints`); port 0 lets the system choose, and
    `endpoints` says what it chose. One of `run` (its own thread or process) and `start` (an event loop) drives it;
    `clock` gives seconds since 1970. An ``inproc://`` address needs the `context` its gatekeepers use. Raises
    `LinkError`, which names the address, when it cannot be bound.
    """

    def __init__(
        self,
        master: Master,
        address: str,
        *,
        clock: Callable[[], float] = time.time,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
    ) -> None:
        self.master = master
        """The core that weighs."""
        self.counters = MasterCounters()
        """What happened so far."""
        self._clock = clock
        self._topics = {name: topic(name) for name in master.domains}
        self._names = _names_by_frame(master)
        self._own_context = context is None
        self._context = zmq.Context() if context is None else context
        self._accounting = opened(self._context, zmq.SUB, queue=_QUEUE, largest=_LARGEST_ACCOUNTING)
        self._control = opened(self._context, zmq.XPUB, queue=_QUEUE, largest=_LARGEST_SUBSCRIPTION)
        self._control.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._discarding = False
        self._due: dict[str, float] = {}
        self._resending: dict[str, Iterator[DelayUntil]] = {}
        self._resent_at: dict[str, float] = {}
        self._forget_at = time.monotonic() + _FORGET_EVERY
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._again: asyncio.Handle | None = None
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self.endpoints = bound(self._accounting, self._control, address)
            """What the two sockets are bound to."""
        except BaseException:
            self.close()
            raise
        self._accounting.subscribe(b"")
        # A gatekeeper that sees this one sends batches (docs/reference/wire.md).
        self._accounting.subscribe(BATCH)

    # -- what drives it ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until `stop` is called, in the thread that calls this; `close` afterwards."""
        poller = zmq.Poller()
        for source in (self._accounting, self._control, self._wake_read):
            poller.register(source, zmq.POLLIN)
        while not self._stopping:
            if not self.turn():
                poller.poll(int(max(0.0, self._rest()) * 1_000) + 1)

    def change(self, master: Master) -> None:
        """Serve another master from now on, on the same sockets: gatekeepers notice nothing but its answers."""
        self.master = master
        self._topics = {name: topic(name) for name in master.domains}
        self._names = _names_by_frame(master)
        self._resending = {}
        self._due = {name: at for name, at in self._due.items() if name in self._topics}

    def stop(self) -> None:
        """Make `run` return soon; from any thread, or a signal handler."""
        self._stopping = True
        os.write(self._wake_write, b"\0")

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from an event loop until `close`."""
        self._loop = loop
        for socket in (self._accounting, self._control):
            loop.add_reader(descriptor(socket), self._wake)
        self._wake()

    def _wake(self) -> None:
        """Take one turn in the event loop, and see to the next."""
        assert self._loop is not None
        for handle in (self._again, self._alarm):
            if handle is not None:
                handle.cancel()
        self._again = self._alarm = None
        # A ZeroMQ descriptor becomes readable once, not for as long as something waits: what a turn leaves, and what
        # sending has swallowed, is looked for again.
        if self.turn():
            self._again = self._loop.call_soon(self._wake)
        else:
            self._alarm = self._loop.call_later(max(0.0, self._rest()), self._wake)

    def close(self) -> None:
        """Let go of the loop, the sockets and the addresses; messages under way are dropped. Twice is once."""
        if self._accounting.closed:
            return
        for handle in (self._again, self._alarm):
            if handle is not None:
                handle.cancel()
        for socket in (self._accounting, self._control):
            if self._loop is not None:
                self._loop.remove_reader(descriptor(socket))
            socket.close()
        if self._own_context:
            self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def turn(self) -> bool:
        """Do what waits, within bounds; say whether more waits now."""
        more = self._receive(_MOST_A_TURN)
        moment = time.monotonic()
        if moment >= self._forget_at:
            self._forget_at = moment + _FORGET_EVERY
            self.master.forget(now=self._clock(), most=_FORGET_AT_ONCE)
        if self._due or self._resending:
            self._resend(moment)
        # Last, since sending may have swallowed the news of a subscription.
        return self._hear(_MOST_A_TURN) or more

    def _rest(self) -> float:
        """Seconds until something is due."""
        moment = time.monotonic()
        if self._resending:
            return _RESEND_PAUSE
        return max(0.0, min([self._forget_at, *self._due.values()]) - moment)

    # -- accounting ----------------------------------------------------------------------------------------------

    def _receive(self, most: int) -> bool:  # noqa: C901 - the hot loop: a call a message costs a tenth of it
        """Take up to `most` messages; say whether more may wait."""
        if self._discarding and not self._discard():
            return True
        recv, names, statuses, weigh = self._accounting.recv, self._names, STATUSES, self.master.weigh
        now, accounted = self._clock(), 0
        frames: tuple[bytes, ...] = ()
        try:
            while most > 0:
                most -= 1
                frames = ()
                domain = recv(NOBLOCK)
                name = names.get(domain)
                if name is None:
                    most -= self._take_other(domain, now)
                    continue
                frames = (domain,)
                word, identifier, fourth = recv(NOBLOCK), recv(NOBLOCK), recv(NOBLOCK, copy=False)
                status, moment = statuses.get(word), fourth.bytes
                if status is None or not fourth.more or not moment.isdigit():
                    self._take_run([domain, word, identifier, moment], now, more=fourth.more)
                    continue
                delayed = recv(NOBLOCK)
                frames = (domain, word, identifier, moment, delayed)
                sixth = recv(NOBLOCK, copy=False)
                if status is _DELAYED:
                    moment = delayed
                if sixth.more or not moment.isdigit() or len(moment) > _MOST_DIGITS:
                    self._take_run([*frames, sixth.bytes], now, more=sixth.more)
                    continue
                accounted += 1
                if len(identifier) > MAX_CONTROL_FRAME:
                    self.counters.too_long += 1
                    continue
                release = weigh(name, status, identifier, int(moment) / 1_000.0, now)
                if release != ASAP:
                    self._publish(name, identifier, release)
        except zmq.Again:
            # Messages arrive whole: the frames that were read end one, and with five of them it was whole.
            if frames:
                self._take(frames, now)
            return False
        finally:
            self.counters.accounted += accounted
        return True

    def _take_other(self, frame: bytes, now: float) -> int:
        """Take a message whose first frame is no known topic; give how many records it brought."""
        more = self._more()
        if not (more and frame.startswith(BATCH)):
            self._take_run([frame], now, more=more)
            return 0
        payload = self._accounting.recv(NOBLOCK)
        if self._more():
            self._discard()
        return self._take_batch(domain_of(frame[len(BATCH) :]), payload, now)

    def _take_batch(self, name: str, payload: bytes, now: float) -> int:
        try:
            records, bad = decode_batch(payload)
        except WireError:
            self.counters.bad_batch += 1
            return 0
        self.counters.batches += 1
        self.counters.bad_record += bad
        self.counters.accounted += len(records)
        for word, identifier, received, delayed, _ in records:
            if len(identifier) > MAX_CONTROL_FRAME:
                self.counters.too_long += 1
                continue
            status = STATUS_OF[word]
            moment = delayed if status is _DELAYED else received
            release = self.master.weigh(name, status, identifier, moment / 1_000.0, now)
            if release != ASAP:
                self._publish(name, identifier, release)
        return len(records)

    def _take_run(self, run: list[bytes], now: float, *, more: bool) -> None:
        """Read a run of frames on to its end, and take the messages in it."""
        while more and len(run) < _LONGEST_RUN:
            run.append(self._accounting.recv(NOBLOCK))
            more = self._more()
        if more:
            self._discard()
        for message in messages_in(run, self._names):
            self._take(message, now)

    def _take(self, message: Sequence[bytes], now: float) -> None:
        """Take one message of any shape: the slow path, which counts what is wrong by kind."""
        if len(message) < 5:
            self.counters.too_short += 1
            return
        if message[1] not in STATUSES:
            self.counters.unknown_status += 1
            return
        self.counters.excess_frames += max(0, len(message) - 6)
        try:
            accounting = decode_accounting(message)
        except WireError:
            self.counters.bad_timestamp += 1
            return
        self.counters.accounted += 1
        if len(accounting.identifier) > MAX_CONTROL_FRAME:
            self.counters.too_long += 1
            return
        control = self.master.account(accounting, now)
        if control is not None:
            self._publish(control.domain, control.identifier, control.release)

    def _more(self) -> bool:
        return bool(self._accounting.getsockopt(zmq.RCVMORE))

    def _discard(self) -> bool:
        """Read past the rest of a message without keeping it, a bounded piece a turn; say whether it ended."""
        for _ in range(_MOST_A_TURN):
            self._discarding = self._accounting.recv(NOBLOCK, copy=False).more
            self.counters.excess_frames += 1
            if not self._discarding:
                return True
        return False

    # -- controls ------------------------------------------------------------------------------------------------

    def _publish(self, name: str, identifier: bytes, release: float) -> None:
        send = self._control.send
        send(self._topics[name], SNDMORE)
        send(_DELAY_UNTIL, SNDMORE)
        send(identifier, SNDMORE)
        send(b"%d" % to_milliseconds(release), NOBLOCK)
        self.counters.controls += 1

    def _hear(self, most: int) -> bool:
        """Take up to `most` subscriptions; say whether more may wait."""
        try:
            for _ in range(most):
                message = self._control.recv(NOBLOCK)
                if message[:1] == b"\1":
                    self.counters.subscriptions += 1
                    self._on_subscription(message[1:])
        except zmq.Again:
            return False
        return True

    def _on_subscription(self, prefix: bytes) -> None:
        """Note which domains' holds a subscription asks for: a topic, its beginning, or one without its NUL."""
        exact = self._names.get(prefix) if prefix.endswith(b"\0") else None
        # An original gatekeeper subscribes to the bare domain, which other domains may begin with.
        names = [exact] if exact else [name for name, topic in self._topics.items() if topic.startswith(prefix)]
        for name in names:
            # At most once in so long a domain, whoever subscribes how often.
            self._due.setdefault(name, self._resent_at.get(name, 0.0) + _RESEND_EVERY)

    def _resend(self, moment: float) -> None:
        """Publish the holds in force again for those who are new, so many at a time."""
        for name in [name for name, due in self._due.items() if due <= moment and name not in self._resending]:
            del self._due[name]
            self._resent_at[name] = moment
            self._resending[name] = self.master.holds(name, now=self._clock())
        for name, holds in list(self._resending.items()):
            piece = list(islice(holds, _RESEND_AT_ONCE))
            for control in piece:
                self._publish(name, control.identifier, control.release)
            self.counters.resent += len(piece)
            if len(piece) < _RESEND_AT_ONCE:
                del self._resending[name]


def _names_by_frame(master: Master) -> dict[bytes, str]:
    """Give the domains by frame 0, with its NUL and, as original gatekeepers send it, without.

    A bare name that looks like another frame of a message is left to the slow path, which takes its time.
    """
    names = {topic(name): name for name in master.domains}
    bare = {frame[:-1]: name for frame, name in names.items()}
    return names | {frame: name for frame, name in bare.items() if frame not in STATUSES and not frame.isdigit()}
