"""Reads the messages of an ASGI server while a request waits, so that the wait ends when its client disconnects.

The application gets the messages later, in order. A read that is under way at the end of the wait is kept, not
cancelled: a cancelled read could lose a message.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

MAX_READ_EARLY: Final = 65_536
"""Bytes of a body that are read ahead while its request waits."""
_DISCONNECTS: Final = ("http.disconnect", "websocket.disconnect")


class ReadAhead:
    """The messages of one request: read by `wait` while it waits, and then by the application through `receive`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._early: deque[Message] = deque()
        self._early_bytes = 0
        self._pending: asyncio.Future[Message] | None = None

    async def wait(self, end: asyncio.Future[Any]) -> bool:
        """Return True when `end` is done, False as soon as the client has disconnected."""
        while not end.done():
            if self._early_bytes > MAX_READ_EARLY:
                await asyncio.wait((end,))
                break
            if self._pending is None:
                self._pending = asyncio.ensure_future(self._receive())
            await asyncio.wait((self._pending, end), return_when=asyncio.FIRST_COMPLETED)
            if self._pending.done():
                message, self._pending = self._pending.result(), None
                if message["type"] in _DISCONNECTS:
                    return False
                self._early.append(message)
                self._early_bytes += len(message.get("body", b""))
        return True

    async def receive(self) -> Message:
        """Return the messages read early, then the read under way, then further ones from the server."""
        if self._early:
            return self._early.popleft()
        if self._pending is not None:
            # Shielded: an application that cancels this read may read again.
            message = await asyncio.shield(self._pending)
            self._pending = None
            return message
        return await self._receive()

    def close(self) -> None:
        """Cancel the read under way: the request is over."""
        if self._pending is not None:
            self._pending.cancel()
