"""Messages between a supervisor and its workers, over a socket pair: a length in four bytes, then msgpack.

When one process ends, the other reads the end of the channel: a worker whose supervisor was killed stops too. The
messages here are those of every kind of worker; a kind may have more.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import msgspec

_MAX_MESSAGE_SIZE: Final = 16 << 20
_LENGTH_SIZE: Final = 4

_Configuration = TypeVar("_Configuration")


class Configure(msgspec.Struct, Generic[_Configuration], frozen=True, tag="Configure"):
    """Supervisor to worker: the first one starts the worker's server, later ones reload it."""

    configuration: _Configuration


class Query(msgspec.Struct, frozen=True, tag=True):
    """Supervisor to worker: what its backend is asked; see `Backend.answer`."""

    name: str
    argument: Any = None


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """Supervisor to worker: accept no more clients, and stop within so many seconds."""

    seconds: float


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Worker to supervisor: clients are accepted."""


class StartFailed(msgspec.Struct, frozen=True, tag=True):
    """Worker to supervisor: it cannot start, and why."""

    reason: str


class Reply(msgspec.Struct, frozen=True, tag=True):
    """Worker to supervisor: the answer to one `Query`, in order; and one with the state, unasked, at the end."""

    name: str
    """That of the query."""
    content: bytes
    """The answer, in msgpack; its type follows from the name."""


class Channel:
    """One end of the connection; `message_type` is the union of the messages that it receives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message_type: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = msgspec.msgpack.Decoder(message_type)

    @classmethod
    async def open(cls, sock: socket.socket, message_type: Any) -> "Channel":
        """Open a channel over one socket of a pair."""
        return cls(*await asyncio.open_connection(sock=sock), message_type)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; it is dropped if the other end is closed."""
        if not self._writer.is_closing():
            encoded = msgspec.msgpack.encode(message)
            self._writer.write(len(encoded).to_bytes(_LENGTH_SIZE, "big") + encoded)

    async def receive(self) -> Any:
        """Return the next message, None at the end of the channel."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_SIZE), "big")
            if length > _MAX_MESSAGE_SIZE:
                return None
            return self._decoder.decode(await self._reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError):
            return None

    async def close(self) -> None:
        """Close the channel, once what was sent is flushed."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
