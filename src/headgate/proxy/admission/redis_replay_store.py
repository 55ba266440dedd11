"""The replay store of several proxies: Redis or Valkey, asked once for each token, with a short timeout.

A token's name is set if it does not exist, and expires when no proxy would accept the token any more. If Redis cannot
answer (down, slow, full), no tunnel is opened: a replay is never admitted. Names must not be evicted early: the
`maxmemory-policy` has to be `noeviction`, which is the default.
"""

import asyncio
import importlib.util
import math
from typing import TYPE_CHECKING, Final

from headgate.errors import ConfigurationError, MissingExtra
from headgate.token import Reason, Valid
from headgate.token.key import encode_base64url
from headgate.token.signed_token import MAX_CLOCK_DIFFERENCE

if TYPE_CHECKING:
    from redis.asyncio import Redis


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

    async def consume(self, valid: Valid, *, now: float) -> Reason | None:
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

    async def _consume(self, valid: Valid, now: float) -> Reason | None:
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
        raise ConfigurationError("the token store is not a Redis URL; try redis://127.0.0.1:6379/0") from None
    if str(pool.connection_kwargs["protocol"]) != str(_PROTOCOL):
        raise ConfigurationError(f"the token store needs protocol {_PROTOCOL} of Redis; leave protocol out of its URL")
    return Redis.from_pool(pool)
