"""What a gate's parent process and its workers say to each other: JSON lines over a pair of sockets.

The end of the channel is the end of the other process: a worker whose parent was killed ends too.
"""

import asyncio
import socket
from typing import Any

import msgspec

from headgate.config import Configuration
from headgate.observe import State

__all__ = ["Ask", "Channel", "Configure", "End", "Failed", "FromParent", "FromWorker", "Ready", "Told"]

_LONGEST = 16 << 20


class Configure(msgspec.Struct, frozen=True, tag=True):
    """Parent to worker: put this configuration in force; the first one starts the gate."""

    tree: Configuration


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Parent to worker: tell your state; who is held longest only when that is asked for."""

    held: bool


class End(msgspec.Struct, frozen=True, tag=True):
    """Parent to worker: accept no more, and end within so many seconds."""

    seconds: float


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Worker to parent: requests are accepted."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Worker to parent: it cannot start, and why."""

    sentence: str


class Told(msgspec.Struct, frozen=True, tag=True):
    """Worker to parent: the answer to one `Ask`, in order."""

    state: State


FromParent = Configure | Ask | End
FromWorker = Ready | Failed | Told


class Channel:
    """One end of the channel; `hears` is the union of the messages that come in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hears: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = msgspec.json.Decoder(hears)

    @classmethod
    async def over(cls, sock: socket.socket, hears: Any) -> "Channel":
        """Give the end that `sock` is."""
        return cls(*await asyncio.open_connection(sock=sock, limit=_LONGEST), hears)

    def send(self, message: FromParent | FromWorker) -> None:
        """Send a message; to an end that is gone, nothing."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def receive(self) -> Any:
        """Give the next message, None at the end of the channel."""
        try:
            line = await self._reader.readline()
        except OSError:
            return None
        return self._decoder.decode(line) if line.endswith(b"\n") else None

    async def close(self) -> None:
        """End the channel, once what was sent is on its way."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return
