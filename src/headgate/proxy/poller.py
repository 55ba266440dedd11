"""Waiting until sockets are ready: one epoll descriptor for all of them, which the event loop reads.

An event loop's own `add_reader` keeps several objects per socket and schedules one more per event. An epoll of our own
costs a dictionary entry per socket and a call per event, on any event loop. It is level-triggered: an event may come
late or twice, so the callee reads until the system has nothing, and an event for a reused descriptor does no harm.
Without epoll, `Poller` itself does the same with the event loop's own functions.

`LoopState` has the poller and what else all connections and tunnels of one event loop share.
"""

import asyncio
import select
from typing import Final, Protocol

READ = 1
"""There is something to read, including an end or an error."""
WRITE = 4
"""There is room to write."""

_MAX_EVENTS = 256
_READ_OR_WRITE = READ | WRITE


class Pollable(Protocol):
    """What is notified when its socket is ready."""

    def ready(self, events: int, /) -> None:
        """Do what can be done now. `events` has the bits `READ` and `WRITE`; READ also stands for conditions that are
        always reported: an error, or both directions closed."""


def new_poller() -> "Poller":
    """Return the best implementation on this system, for the running event loop."""
    return EpollPoller() if hasattr(select, "epoll") else Poller()


class Poller:
    """Notifies objects when their sockets are ready, by the event loop's own functions, which every system has."""

    __slots__ = ("_events", "_loop", "_pollables")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pollables: dict[int, Pollable] = {}
        self._events: dict[int, int] = {}

    def register(self, descriptor: int, events: int, pollable: Pollable) -> None:
        """Start to notify `pollable` of these events; the descriptor must not be registered yet."""
        self._pollables[descriptor] = pollable
        self._events[descriptor] = 0
        self.modify(descriptor, events)

    def modify(self, descriptor: int, events: int) -> None:
        """Change the events; with 0, errors are still reported where the system does so."""
        before, self._events[descriptor] = self._events[descriptor], events
        loop = self._loop
        if events & READ & ~before:
            loop.add_reader(descriptor, self._notify, descriptor, READ)
        elif before & READ & ~events:
            loop.remove_reader(descriptor)
        if events & WRITE & ~before:
            loop.add_writer(descriptor, self._notify, descriptor, WRITE)
        elif before & WRITE & ~events:
            loop.remove_writer(descriptor)

    def hand_over(self, descriptor: int, pollable: Pollable) -> None:
        """Notify another object from now on."""
        self._pollables[descriptor] = pollable

    def unregister(self, descriptor: int) -> None:
        """Stop; does nothing if the descriptor is not registered."""
        if self._pollables.pop(descriptor, None) is not None:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
            del self._events[descriptor]

    def drop(self, descriptor: int) -> None:
        """Stop, for a descriptor that is closed next; does nothing if it is not registered."""
        self.unregister(descriptor)

    def close(self) -> None:
        """Stop all."""
        for descriptor in list(self._pollables):
            self.unregister(descriptor)

    def _notify(self, descriptor: int, events: int) -> None:
        pollable = self._pollables.get(descriptor)
        if pollable is not None:
            try:
                pollable.ready(events)
            except Exception as error:
                _report(self._loop, pollable, error)


class EpollPoller(Poller):
    """Uses one epoll descriptor."""

    __slots__ = ("_epoll",)

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll()
        self._loop.add_reader(self._epoll.fileno(), self._dispatch)

    def register(self, descriptor: int, events: int, pollable: Pollable) -> None:
        """Start; see `Poller`."""
        self._pollables[descriptor] = pollable
        self._epoll.register(descriptor, events)

    def modify(self, descriptor: int, events: int) -> None:
        """Change the events; see `Poller`."""
        self._epoll.modify(descriptor, events)

    def unregister(self, descriptor: int) -> None:
        """Stop; see `Poller`."""
        if self._pollables.pop(descriptor, None) is not None:
            try:  # noqa: SIM105 - suppress() would cost a call for each closed socket
                self._epoll.unregister(descriptor)
            except OSError:
                pass  # it was closed

    def drop(self, descriptor: int) -> None:
        """Stop before the descriptor is closed; see `Poller`."""
        self._pollables.pop(descriptor, None)  # the system forgets what is closed

    def close(self) -> None:
        """Stop all."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._pollables.clear()

    def _dispatch(self) -> None:
        pollables = self._pollables
        for descriptor, events in self._epoll.poll(0, _MAX_EVENTS):
            pollable = pollables.get(descriptor)
            if pollable is None:
                continue
            try:
                pollable.ready(events | READ if events & ~_READ_OR_WRITE else events)
            except Exception as error:
                _report(self._loop, pollable, error)


def _report(loop: asyncio.AbstractEventLoop, pollable: Pollable, error: Exception) -> None:
    """Report a defect of ours as the loop itself would; the other sockets are still served."""
    loop.call_exception_handler({"message": f"{type(pollable).__name__} failed", "exception": error})


COPY_SIZE: Final = 1 << 18
"""Bytes copied at once through the shared read buffer."""
TLS_RECORD_SIZE: Final = 1 << 14
"""Bytes in a TLS record at most. Reads inside TLS are never smaller: no poller reports what OpenSSL keeps back."""
MAX_BUFFERED: Final = 1 << 25
"""Bytes buffered in all tunnels together above which less is read at once."""


class LoopState:
    """The poller, the coarse clock, the read buffer, and the number of bytes that wait in memory."""

    __slots__ = ("buffer", "buffered", "now", "poller", "slots", "window_growth")

    def __init__(self, poller: Poller, *, now: float) -> None:
        self.poller = poller
        self.now = now
        """A coarse clock that the server advances: reading the system's at every event costs more than it is worth."""
        self.buffer = memoryview(bytearray(COPY_SIZE))
        """Holds what was read until it is written; valid until the next read of any connection."""
        starts = range(0, COPY_SIZE, TLS_RECORD_SIZE)
        self.slots = [self.buffer[start + 9 : start + TLS_RECORD_SIZE] for start in starts]
        """Where the payloads of HTTP/2 frames that fit in one TLS record stand in `buffer`."""
        self.buffered = 0
        """Bytes that wait in memory to be written, in all tunnels together."""
        self.window_growth = 0
        """Bytes by which the receive windows of HTTP/2 connections exceed their initial size, all together."""
