"""The bus side of a master: accounting in, controls out.

This file knows nothing of rules. "Both are physically outgoing from the gatekeeper (bind() on the master […])": a SUB
socket that hears every topic, and an XPUB socket, which tells who subscribes, on the port after it.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

import zmq

from headgate.limit.master import Master
from headgate.link.batch import BATCH
from headgate.link.counters import MasterCounters
from headgate.link.intake import Intake
from headgate.link.outlet import Outlet
from headgate.link.sockets import bound, descriptor, let_go, opened

__all__ = ["MasterLink"]

_QUEUE = 10_000
_LARGEST_ACCOUNTING = 256 * 1024
_LARGEST_SUBSCRIPTION = 1_024
_MOST_A_TURN = 256
_FORGET_EVERY = 0.1
_FORGET_AT_ONCE = 1_000


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
        self._own_context = context is None
        self._context = zmq.Context() if context is None else context
        self._accounting = opened(self._context, zmq.SUB, queue=_QUEUE, largest=_LARGEST_ACCOUNTING)
        self._control = opened(self._context, zmq.XPUB, queue=_QUEUE, largest=_LARGEST_SUBSCRIPTION)
        self._control.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._outlet = Outlet(self._control, master, self.counters, clock)
        self._intake = Intake(self._accounting, master, self._outlet.publish, self.counters)
        self._forget_at = time.monotonic() + _FORGET_EVERY
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._again: asyncio.Handle | None = None
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # "Master subscribes to "" (all messages)". A gatekeeper that sees the other one sends batches
        # (docs/reference/wire.md).
        for prefix in (BATCH, b""):
            self._accounting.subscribe(prefix)
        try:
            self.endpoints = bound(self._accounting, self._control, address)
            """What the two sockets are bound to."""
        except BaseException:
            self.close()
            raise

    def change(self, master: Master) -> None:
        """Weigh with another master from now on; its holds are published, since they may differ."""
        self.master = master
        self._intake.change(master)
        self._outlet.change(master)
        if self._loop is not None:
            self._wake()

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Serve until `stop` is called or `until`, asked once a turn, says so, in the thread that calls this."""
        poller = zmq.Poller()
        for source in (self._accounting, self._control, self._wake_read):
            poller.register(source, zmq.POLLIN)
        while not (self._stopping or until()):
            if not self.turn() and not until():
                poller.poll(int(self._rest() * 1_000) + 1)

    def stop(self) -> None:
        """Make `run` return soon; from any thread, or a signal handler."""
        self._stopping = True
        with suppress(BlockingIOError):
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
            self._alarm = self._loop.call_later(self._rest(), self._wake)

    def close(self) -> None:
        """Let go of the loop, the sockets and the addresses; messages under way are dropped. Twice is once."""
        if self._accounting.closed:
            return
        for handle in (self._again, self._alarm):
            if handle is not None:
                handle.cancel()
        let_go((self._accounting, self._control), self._loop)
        if self._own_context:
            self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def turn(self) -> bool:
        """Do what waits, within bounds; say whether more waits now."""
        now = self._clock()
        more = self._intake.receive(_MOST_A_TURN, now)
        moment = time.monotonic()
        if moment >= self._forget_at:
            self._forget_at = moment + _FORGET_EVERY
            self.master.forget(now=now, most=_FORGET_AT_ONCE)
        self._outlet.resend(moment)
        # Last, since sending may have swallowed the news of a subscription.
        return self._outlet.hear(_MOST_A_TURN) or more

    def _rest(self) -> float:
        """Seconds until something is due."""
        moment = time.monotonic()
        return max(0.0, min(self._forget_at, self._outlet.due()) - moment)
