"""What a parent process and its workers say to each other over a pair of sockets: a length in four bytes, and msgpack.

The end of the channel is the end of the other process: a worker whose parent was killed ends too. Here are the messages
that every kind of worker has; a kind may have more of its own.
"""

import asyncio
import socket
from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["Ask", "Channel", "Configure", "End", "Failed", "Ready", "Told"]

_LONGEST = 16 << 20
_LENGTH = 4

_Orders = TypeVar("_Orders")
_State = TypeVar("_State")


class Configure(msgspec.Struct, Generic[_Orders], frozen=True, tag="Configure"):
    """Parent to worker: put this in force; the first one starts the worker's work."""

    orders: _Orders


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Parent to worker: tell your state; what takes long to find out only when the whole of it is asked for."""

    whole: bool


class End(msgspec.Struct, frozen=True, tag=True):
    """Parent to worker: accept no more, and end within so many seconds."""

    seconds: float


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Worker to parent: it accepts."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Worker to parent: it cannot start, and why."""

    sentence: str


class Told(msgspec.Struct, Generic[_State], frozen=True, tag="Told"):
    """Worker to parent: the answer to one `Ask`, in order; and, unasked, the last word."""

    state: _State


class Channel:
    """One end of the channel; `hears` is the union of the messages that come in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hears: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = msgspec.msgpack.Decoder(hears)

    @classmethod
    async def over(cls, sock: socket.socket, hears: Any) -> "Channel":
        """Give the end that `sock` is."""
        return cls(*await asyncio.open_connection(sock=sock), hears)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; to an end that is gone, nothing."""
        if not self._writer.is_closing():
            encoded = msgspec.msgpack.encode(message)
            self._writer.write(len(encoded).to_bytes(_LENGTH, "big") + encoded)

    async def receive(self) -> Any:
        """Give the next message, None at the end of the channel."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            if length > _LONGEST:
                return None
            return self._decoder.decode(await self._reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError):
            return None

    async def close(self) -> None:
        """End the channel, once what was sent is on its way."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return
