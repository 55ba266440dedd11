"""Each token is good for one tunnel: checking tokens, and remembering which were shown.

A token is consumed when it is checked, whatever becomes of the request afterwards. Only genuine tokens are stored, so
untrusted clients cannot fill the store. `SharedReplayStore` serves the workers of one proxy, `RedisReplayStore` those
of several proxies.

Redis or Valkey is asked once for each token, with a short timeout. A token's name is set if it does not exist, and
expires when no proxy would accept the token any more. If Redis cannot answer (down, slow, full), no tunnel is opened: a
replay is never admitted. Names must not be evicted early: the `maxmemory-policy` has to be `noeviction`, the default.
"""

import asyncio
import importlib.util
import math
import mmap
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from headgate.errors import ConfigurationError, MissingExtra
from headgate.proxy.admission.limits import LockTimeout, create_shared_memory, locked
from headgate.token import Checker, Key, Reason, ReplayTable, ValidToken
from headgate.token.keys import encode_base64url
from headgate.token.replay_table import MAX_TOKENS, table_size
from headgate.token.signed_token import MAX_CLOCK_DIFFERENCE

if TYPE_CHECKING:
    from redis.asyncio import Redis


class ReplayStore(Protocol):
    """Remembers which tokens were shown."""

    async def consume(self, valid: ValidToken, *, now: float) -> Reason | None:
        """Consume a token: None the first time, else the reason; "tokens" if the store does not answer in time."""

    async def close(self) -> None:
        """Release what it holds."""


class TokenCheck:
    """Checks tokens of any of these keys, and owns `store`; raises `ConfigurationError` for contradictory keys."""

    def __init__(self, keys: Iterable[Key], store: ReplayStore) -> None:
        self._checker = Checker(keys)
        self._store = store

    async def check(self, token: str | None, *, now: float, origin: str) -> ValidToken | Reason:
        """Check a token for a tunnel to a serialised origin, and consume it."""
        valid = self._checker.check(token, now=now, origin=origin)
        if isinstance(valid, ValidToken):
            return await self._store.consume(valid, now=now) or valid
        return valid

    def replace_keys(self, keys: Iterable[Key]) -> None:
        """Use other keys from now on; contradictory ones raise and leave the old ones in force."""
        self._checker = Checker(keys)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


def create_replay_table(maximum: int = MAX_TOKENS) -> int:
    """Create shared memory for so many tokens at a time; returns a descriptor that the caller closes."""
    return create_shared_memory(table_size(maximum))


class SharedReplayStore:
    """A table in shared memory; owns the descriptor, which comes from `create_replay_table`. For one event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self._table = ReplayTable(memoryview(self._memory))

    async def consume(self, valid: ValidToken, *, now: float) -> Reason | None:
        """Consume a token; "tokens" if the table is full, or the lock cannot be taken in time."""
        try:
            async with locked(self._descriptor):
                return self._table.consume(valid, now=now)
        except LockTimeout:
            return "tokens"

    async def close(self) -> None:
        """Release the table; it ends with the last process that has it."""
        self._table.release()
        self._memory.close()
        os.close(self._descriptor)


_PREFIX: Final = "headgate:token:"
_CONNECTIONS: Final = 16
_PROTOCOL: Final = 2
_RETRY_AFTER: Final = 1.0
"""Seconds for which Redis is not asked after a failure, so that no other request waits for it."""


class RedisReplayStore:
    """Stores tokens in the Redis at `url` (`redis://`, `rediss://` or `unix://`), in keys that begin with `prefix`.

    After the prefix come the key id and the token's random bytes: the name of an unknown token cannot be guessed, and a
    token cannot be derived from a name. Redis has `timeout` seconds to answer. Raises `ConfigurationError` for an
    invalid URL, and `MissingExtra` without the package redis.
    """

    def __init__(self, url: str, *, prefix: str = _PREFIX, timeout: float = 0.5) -> None:
        self._client = _client(url)
        self._prefix = prefix
        self._timeout = timeout
        self._retry_at = -math.inf
        self._pending: set[asyncio.Task[Reason | None]] = set()

    async def consume(self, valid: ValidToken, *, now: float) -> Reason | None:
        """Consume a token; "tokens" if Redis does not answer in time."""
        if asyncio.get_running_loop().time() < self._retry_at:
            return "tokens"
        # To its end even if the client leaves: a connection with half a reply on it cannot be used again.
        pending = asyncio.ensure_future(self._consume(valid, now))
        self._pending.add(pending)
        pending.add_done_callback(self._pending.discard)
        return await asyncio.shield(pending)

    async def close(self) -> None:
        """Close the connections, after pending requests are answered or time out."""
        if self._pending:
            await asyncio.wait(self._pending)
        await self._client.aclose()

    async def _consume(self, valid: ValidToken, now: float) -> Reason | None:
        from redis.exceptions import RedisError

        # Another proxy's clock may be behind: for that proxy the token is valid for longer.
        milliseconds = math.ceil((valid.expires - now + MAX_CLOCK_DIFFERENCE) * 1000)
        name = self._prefix + encode_base64url(valid.identity)
        try:
            # For connecting, the handshake of the protocol, and the reply together.
            async with asyncio.timeout(self._timeout):
                was_new = await self._client.set(name, b"", nx=True, px=milliseconds)
        except (RedisError, OSError):
            self._retry_at = asyncio.get_running_loop().time() + _RETRY_AFTER
            return "tokens"
        return None if was_new else "token_replayed"


def _client(url: str) -> "Redis":
    if importlib.util.find_spec("redis") is None:
        raise MissingExtra("redis", "storing tokens in Redis")
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.exceptions import RedisError

    try:
        # An explicit pool does not retry, unlike a client's own: after a retry, Redis would call a new token shown.
        # Version 2 of the protocol lacks unsolicited messages, so the pool can check whether Redis has closed an idle
        # connection before using it.
        pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, protocol=_PROTOCOL)
        pool.make_connection()  # type: ignore[no-untyped-call]  # opens nothing, and checks all options
    except (ValueError, TypeError, RedisError):
        raise ConfigurationError(
            "invalid token store; expected the URL of a Redis server, such as redis://127.0.0.1:6379/0"
        ) from None
    if str(pool.connection_kwargs["protocol"]) != str(_PROTOCOL):
        raise ConfigurationError(f"the token store needs protocol {_PROTOCOL} of Redis; leave protocol out of its URL")
    return Redis.from_pool(pool)
