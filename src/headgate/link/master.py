"""A master's link to its gatekeepers: it receives accounting and publishes controls.

This module does not know rules. "Both are physically outgoing from the gatekeeper (bind() on the master […])": a SUB
socket that subscribes to every topic, and an XPUB socket, which receives subscriptions, on the next port.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

import zmq

from headgate.limit.master import Master
from headgate.link.accounting_receiver import AccountingReceiver
from headgate.link.batch import BATCH
from headgate.link.control_publisher import ControlPublisher
from headgate.link.counters import MasterCounters
from headgate.link.sockets import bind_pair, close_sockets, file_descriptor, open_socket

_QUEUE = 10_000
_MAX_ACCOUNTING_SIZE = 256 * 1024
_MAX_SUBSCRIPTION_SIZE = 1_024
_MAX_MESSAGES = 256
"""Messages received per turn of the event loop."""
_FORGET_INTERVAL = 0.1
_MAX_EXAMINED = 1_000
"""Histories examined per interval."""


class MasterLink:
    """The two sockets of a master, bound when the link is created.

    `address` names the accounting port (see `headgate.link.address.endpoints`); port 0 lets the system choose, and
    `endpoints` has the result. Call `run` (in a thread or process of its own) or `start` (with an event loop). `clock`
    returns seconds since 1970. An ``inproc://`` address needs the `context` of its gatekeepers. Raises `LinkError` if
    the address cannot be bound.
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
        """The master that computes release times."""
        self.counters = MasterCounters()
        """The counters since the start."""
        self._clock = clock
        self._own_context = context is None
        self._context = zmq.Context() if context is None else context
        self._accounting = open_socket(self._context, zmq.SUB, queue=_QUEUE, largest=_MAX_ACCOUNTING_SIZE)
        self._control = open_socket(self._context, zmq.XPUB, queue=_QUEUE, largest=_MAX_SUBSCRIPTION_SIZE)
        self._control.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._publisher = ControlPublisher(self._control, master, self.counters, clock)
        self._receiver = AccountingReceiver(self._accounting, master, self._publisher.publish, self.counters)
        self._forget_at = time.monotonic() + _FORGET_INTERVAL
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._again: asyncio.Handle | None = None
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # "Master subscribes to "" (all messages)". A gatekeeper that receives the other
        # subscription sends batches (docs/reference/wire.md).
        for prefix in (BATCH, b""):
            self._accounting.subscribe(prefix)
        try:
            self.endpoints = bind_pair(self._accounting, self._control, address)
            """The endpoints of the two sockets."""
        except BaseException:
            self.close()
            raise

    def set_master(self, master: Master) -> None:
        """Replace the master; its holds are published, because they may differ."""
        self.master = master
        self._receiver.set_master(master)
        self._publisher.set_master(master)
        if self._loop is not None:
            self._wake()

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Serve in this thread until `stop` is called or `until`, called once per turn, returns true."""
        poller = zmq.Poller()
        for source in (self._accounting, self._control, self._wake_read):
            poller.register(source, zmq.POLLIN)
        while not (self._stopping or until()):
            if not self.turn() and not until():
                poller.poll(int(self._timeout() * 1_000) + 1)

    def stop(self) -> None:
        """Make `run` return soon; can be called from any thread, or a signal handler."""
        self._stopping = True
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from an event loop until `close`."""
        self._loop = loop
        for socket in (self._accounting, self._control):
            loop.add_reader(file_descriptor(socket), self._wake)
        self._wake()

    def _wake(self) -> None:
        """Run one turn in the event loop, and schedule the next."""
        assert self._loop is not None
        for handle in (self._again, self._alarm):
            if handle is not None:
                handle.cancel()
        self._again = self._alarm = None
        # A ZeroMQ descriptor signals new messages once, not for as long as messages are waiting: after a turn that left
        # messages, the next one follows at once.
        if self.turn():
            self._again = self._loop.call_soon(self._wake)
        else:
            self._alarm = self._loop.call_later(self._timeout(), self._wake)

    def close(self) -> None:
        """Leave the loop and close the sockets; messages in transit are dropped. Can be called twice."""
        if self._accounting.closed:
            return
        for handle in (self._again, self._alarm):
            if handle is not None:
                handle.cancel()
        close_sockets((self._accounting, self._control), self._loop)
        if self._own_context:
            self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)

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

    def _timeout(self) -> float:
        """Return the seconds until the next scheduled work."""
        moment = time.monotonic()
        return max(0.0, min(self._forget_at, self._publisher.due()) - moment)
