"""Which sockets are ready: thousands of them behind one descriptor of the event loop.

A loop's own `add_reader` keeps several objects per socket and schedules one more per event. Here is an epoll of our
own, itself one readable descriptor for the loop, whichever loop that is: a dictionary entry per socket, and one call
per event. It is level-triggered, so an event may come late or twice, and whoever is called reads until the system says
that there is nothing; an event for a descriptor that was closed and used anew meanwhile does no harm either.
Where there is no epoll, `LoopPoll` does the same with what every event loop has.
"""

import asyncio
import select
from typing import Protocol

__all__ = ["READ", "WRITE", "EpollPoll", "LoopPoll", "Poll", "Ready", "new_poll"]

READ = 1
"""There is something to read, an end or an error included."""
WRITE = 4
"""There is room to write."""

_MOST_EVENTS = 256
_EITHER = READ | WRITE


class Ready(Protocol):
    """What is told that its socket is ready."""

    def ready(self, events: int, /) -> None:
        """Do what can be done now: `events` has the bits `READ` and `WRITE`, READ also for what cannot be declined:
        an error, or a connection over in both directions."""


class Poll(Protocol):
    """What both kinds can do."""

    def watch(self, descriptor: int, wanted: int, ready: Ready) -> None:
        """Begin to tell `ready`; a descriptor that is watched already."""

    def change(self, descriptor: int, wanted: int) -> None:
        """Want other events from now on; with none, errors are still told of where the system does that."""

    def hand_over(self, descriptor: int, ready: Ready) -> None:
        """Tell somebody else from now on."""

    def forget(self, descriptor: int) -> None:
        """Stop; a descriptor that is not watched is none to worry about."""

    def drop(self, descriptor: int) -> None:
        """Stop, since the descriptor is closed next; one that is not watched is none to worry about."""

    def close(self) -> None:
        """Stop all."""


def new_poll() -> Poll:
    """Make one for the running loop, the best there is on this system."""
    return EpollPoll() if hasattr(select, "epoll") else LoopPoll()


class EpollPoll:
    """See the module."""

    __slots__ = ("_epoll", "_loop", "_ready")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._ready: dict[int, Ready] = {}
        self._loop.add_reader(self._epoll.fileno(), self._take_turn)

    def watch(self, descriptor: int, wanted: int, ready: Ready) -> None:
        """See `Poll`."""
        self._ready[descriptor] = ready
        self._epoll.register(descriptor, wanted)

    def change(self, descriptor: int, wanted: int) -> None:
        """See `Poll`."""
        self._epoll.modify(descriptor, wanted)

    def hand_over(self, descriptor: int, ready: Ready) -> None:
        """See `Poll`."""
        self._ready[descriptor] = ready

    def forget(self, descriptor: int) -> None:
        """See `Poll`."""
        if self._ready.pop(descriptor, None) is not None:
            try:  # noqa: SIM105 - this costs nothing where nothing is raised
                self._epoll.unregister(descriptor)
            except OSError:
                pass  # it was closed

    def drop(self, descriptor: int) -> None:
        """See `Poll`."""
        self._ready.pop(descriptor, None)  # the system forgets what is closed

    def close(self) -> None:
        """See `Poll`."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._ready.clear()

    def _take_turn(self) -> None:
        ready = self._ready
        for descriptor, events in self._epoll.poll(0, _MOST_EVENTS):
            one = ready.get(descriptor)
            if one is None:
                continue
            try:
                one.ready(events | READ if events & ~_EITHER else events)
            except Exception as error:
                _report(self._loop, one, error)


class LoopPoll:
    """The same with `add_reader` and `add_writer`, for systems that have no epoll."""

    __slots__ = ("_loop", "_ready", "_wanted")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: dict[int, Ready] = {}
        self._wanted: dict[int, int] = {}

    def watch(self, descriptor: int, wanted: int, ready: Ready) -> None:
        """See `Poll`."""
        self._ready[descriptor] = ready
        self._wanted[descriptor] = 0
        self.change(descriptor, wanted)

    def change(self, descriptor: int, wanted: int) -> None:
        """See `Poll`."""
        before, self._wanted[descriptor] = self._wanted[descriptor], wanted
        loop = self._loop
        if wanted & READ & ~before:
            loop.add_reader(descriptor, self._tell, descriptor, READ)
        elif before & READ & ~wanted:
            loop.remove_reader(descriptor)
        if wanted & WRITE & ~before:
            loop.add_writer(descriptor, self._tell, descriptor, WRITE)
        elif before & WRITE & ~wanted:
            loop.remove_writer(descriptor)

    def hand_over(self, descriptor: int, ready: Ready) -> None:
        """See `Poll`."""
        self._ready[descriptor] = ready

    def forget(self, descriptor: int) -> None:
        """See `Poll`."""
        if self._ready.pop(descriptor, None) is not None:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
            del self._wanted[descriptor]

    def drop(self, descriptor: int) -> None:
        """See `Poll`."""
        self.forget(descriptor)

    def close(self) -> None:
        """See `Poll`."""
        for descriptor in list(self._ready):
            self.forget(descriptor)

    def _tell(self, descriptor: int, events: int) -> None:
        one = self._ready.get(descriptor)
        if one is not None:
            try:
                one.ready(events)
            except Exception as error:
                _report(self._loop, one, error)


def _report(loop: asyncio.AbstractEventLoop, one: Ready, error: Exception) -> None:
    """Tell of a mistake of ours as the loop itself would; the other sockets go on."""
    loop.call_exception_handler({"message": f"{type(one).__name__} failed", "exception": error})
