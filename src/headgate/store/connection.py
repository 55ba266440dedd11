"""One connection to a Redis or Valkey server: authentication, the function library, and pipelined calls.

This module does not know domains. Every operation has a timeout, and none is repeated: a call that was sent and not
answered may have been executed, and a request must not count twice.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.config import Address
from headgate.config.store_url import StoreUrl
from headgate.errors import HeadgateError, MissingExtra
from headgate.store import library

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

TIMEOUT: Final = 2.0
"""Seconds for a connection, including its handshake, and for each reply."""

_PROTOCOL: Final = 2
_NOT_FOUND: Final = "Function not found"
_NO_CLUSTER: Final = ("cluster support disabled", "unknown command")


class StoreError(HeadgateError):
    """A server of the store cannot be used; the text is a clause without a full stop."""


class SlotRange(NamedTuple):
    """Hash slots, both included, and the server that has them."""

    first: int
    last: int
    address: Address


class Moved(NamedTuple):
    """The reply to a call whose key another server has; the call was not executed."""

    slot: int
    address: Address


class NotLoaded(NamedTuple):
    """The reply to a call of a function that the server does not have; the call was not executed."""


class Migrating(NamedTuple):
    """The reply to a call whose slot is on its way to another server; the call was not executed."""


class ClusterDown(NamedTuple):
    """The reply of a server that is up, while another server's slots are not served; the call was not executed."""

    reason: str


Reply = bytes | ClusterDown | Moved | NotLoaded | Migrating
Command = Sequence[bytes]


class StoreConnection:
    """An open connection; `close` it. Methods raise `StoreError`, after which it cannot be used any more."""

    def __init__(self, connection: "AbstractConnection", address: Address) -> None:
        self._connection = connection
        self._address = address

    async def close(self) -> None:
        """Close the connection without waiting for the server."""
        await self._connection.disconnect(nowait=True)

    async def prepare(self) -> bool:
        """Load the function library unless the server has it, and check that it can write; return whether it was."""
        probe = (b"FCALL", library.RECORD, b"0", *library.PROBE_ARGUMENTS)
        await self.send([probe])
        if not isinstance(await self.receive(), NotLoaded):
            return False
        await self.load()
        await self.send([probe])
        if isinstance(await self.receive(), NotLoaded):
            raise StoreError("the function library is lost as soon as it is loaded")
        return True

    async def load(self) -> None:
        """Load the function library, unless another master has just done so."""
        from redis.exceptions import RedisError, ResponseError

        try:
            await self._call(b"FUNCTION", b"LOAD", library.CODE.encode())
        except ResponseError as error:
            if "already exists" not in str(error):
                raise StoreError(f"cannot load functions ({error}); Redis 7 or Valkey is needed") from None
        except (RedisError, OSError) as error:
            raise StoreError(str(error)) from None

    async def slots(self) -> list[SlotRange]:
        """Return the slots of each master of the cluster; empty if the server is not part of one."""
        from redis.exceptions import RedisError

        try:
            reply = await self._call(b"CLUSTER", b"SLOTS")
            info = await self._call(b"CLUSTER", b"INFO")
        except (RedisError, OSError) as error:
            if any(text in str(error) for text in _NO_CLUSTER):
                return []
            raise StoreError(str(error)) from None
        if b"cluster_state:ok" not in info:
            raise StoreError("the cluster is down")
        return [SlotRange(first, last, self._to_address(*master[:2])) for first, last, master, *_replicas in reply]

    async def send(self, commands: Sequence[Command]) -> None:
        """Send commands; `receive` as many replies."""
        from redis.exceptions import RedisError

        try:
            await self._connection.send_packed_command(_pack(commands), check_health=False)
        except (RedisError, OSError) as error:
            raise StoreError(str(error)) from None

    async def receive(self) -> Reply:
        """Receive the next reply."""
        from redis.exceptions import RedisError, ResponseError

        try:
            reply = await self._connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return self._refused(error)
        except (RedisError, OSError) as error:
            raise StoreError(str(error)) from None
        if not isinstance(reply, bytes):
            raise StoreError(f"unexpected reply {reply!r:.40}")
        return reply

    def _refused(self, error: Exception) -> ClusterDown | Moved | Migrating | NotLoaded:
        """Return what kept a call from being executed; raises `StoreError` for other errors."""
        from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

        text = str(error)
        # Before version 6, only the cluster client of the library has exceptions for replies of a cluster.
        if isinstance(error, MovedError) or text.startswith("MOVED "):
            slot, _, node = text.removeprefix("MOVED ").partition(" ")
            host, _, port = node.rpartition(":")
            return Moved(int(slot), self._to_address(host.encode(), int(port)))
        if isinstance(error, (AskError, TryAgainError)) or text.startswith(("ASK ", "TRYAGAIN ")):
            return Migrating()
        if isinstance(error, ClusterDownError) or text.startswith("CLUSTERDOWN "):
            return ClusterDown(text.removeprefix("CLUSTERDOWN "))
        if _NOT_FOUND in text:
            return NotLoaded()
        raise StoreError(text) from None

    async def _call(self, *words: bytes) -> Any:
        await self._connection.send_packed_command(_pack([words]), check_health=False)
        return await self._connection.read_response(disable_decoding=True)

    def _to_address(self, host: bytes | None, port: int) -> Address:
        """Return the address of a node; a node that does not know its own name is the one that answers."""
        return Address(host.decode() if host else self._address.host, port)


def _pack(commands: Iterable[Command]) -> bytes:
    """Encode commands; for hundreds of keys, in a third of the time that the library takes."""
    pieces: list[bytes] = []
    for words in commands:
        pieces.append(b"*%d\r\n" % len(words))
        pieces += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(pieces)


async def connect(url: StoreUrl, address: Address) -> StoreConnection:
    """Open a connection to one server of a store, and authenticate. Raises `StoreError`."""
    from redis.exceptions import RedisError

    connection = _new_connection(url, address)
    try:
        async with asyncio.timeout(TIMEOUT):
            await connection.connect()  # type: ignore[no-untyped-call]  # has no annotations
    except (RedisError, OSError) as error:
        await connection.disconnect(nowait=True)
        raise StoreError(str(error) or f"no connection in {TIMEOUT:g} s") from None
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return StoreConnection(connection, address)


def require_extra() -> None:
    """Raise `MissingExtra` without the package redis."""
    try:
        import redis.asyncio  # noqa: F401  # the import is the check
    except ImportError:
        raise MissingExtra("redis", "a store for several masters") from None


def _new_connection(url: StoreUrl, address: Address) -> "AbstractConnection":
    from redis.asyncio.connection import Connection as PlainConnection
    from redis.asyncio.connection import SSLConnection

    settings: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "db": url.database,
        "username": url.username or None,
        "password": url.password or None,
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        "protocol": _PROTOCOL,
        **dict(url.options),
    }
    return SSLConnection(**settings) if url.tls else PlainConnection(**settings)
