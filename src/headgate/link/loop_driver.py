"""Drives the sockets of a link from an event loop.

This module reads no message. A ZeroMQ descriptor signals new messages once, not for as long as messages are waiting:
after a turn that left messages, the next one follows at once.
"""

import asyncio
from collections.abc import Callable, Iterable

from headgate.link.sockets import Socket, file_descriptor
from headgate.release import NEVER


class LoopDriver:
    """Calls `turn` at once, when a message arrives at one of `sockets`, and when it is due, until `close`.

    `turn` handles a limited number of messages, and returns the seconds until its next call: 0 if more are waiting,
    infinity if only a message makes it due. Call `wake` or `wake_soon` after other uses of the sockets: sending may
    consume the event of a message.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Callable[[], float], sockets: Iterable[Socket]) -> None:
        self._loop = loop
        self._turn = turn
        self._descriptors = [file_descriptor(socket) for socket in sockets]
        self._next: asyncio.Handle | None = None
        self._is_soon = False
        for descriptor in self._descriptors:
            loop.add_reader(descriptor, self.wake)
        self.wake()

    def wake(self) -> None:
        """Run one turn, and schedule the next."""
        if self._next is not None:
            self._next.cancel()
            self._next, self._is_soon = None, False
        seconds = self._turn()
        if seconds == 0.0:
            self.wake_soon()
        elif seconds < NEVER:
            self._next = self._loop.call_later(seconds, self.wake)

    def wake_soon(self) -> None:
        """Run a turn in the next iteration of the event loop."""
        if self._is_soon:
            return
        if self._next is not None:
            self._next.cancel()
        self._next, self._is_soon = self._loop.call_soon(self.wake), True

    def close(self) -> None:
        """Leave the loop; call it before the sockets are closed."""
        if self._next is not None:
            self._next.cancel()
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        self._descriptors.clear()
