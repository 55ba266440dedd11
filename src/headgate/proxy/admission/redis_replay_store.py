"""The memory of several proxies: Redis or Valkey, asked once for each token, and never waited for.

A token's name is set where it is not there yet, and goes when no proxy would take the token any more. Where that cannot
be told (nobody there, no answer in time, no room), no tunnel is opened: a replay is never let in for Redis's sake. What
must not be is that names are dropped early: its `maxmemory-policy` has to be `noeviction`, which it is unless changed.
"""

import asyncio
import importlib.util
import math
from typing import TYPE_CHECKING, Final

from headgate.errors import ConfigurationError, MissingExtra
from headgate.token import Reason, Valid, base64url
from headgate.token.checking import CLOCKS_DIFFER

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisReplayStore"]

_PREFIX: Final = "headgate:token:"
_CONNECTIONS: Final = 16
_PROTOCOL: Final = 2
_HOLD: Final = 1.0
"""Seconds for which Redis is not asked after it failed, so that nobody else waits for it."""


class RedisReplayStore:
    """Remembers in the Redis at `url` (`redis://`, `rediss://` or `unix://`), under names that begin with `prefix`.

    What follows the prefix is the key's id and the token's random bytes: nobody can guess the name of a token that they
    were not given, and nobody can make a token out of a name. An answer that takes more than `patience` seconds is
    none. Raises `ConfigurationError` for a URL that is none, and `MissingExtra` without the package redis.
    """

    def __init__(self, url: str, *, prefix: str = _PREFIX, patience: float = 0.5) -> None:
        self._client = _client(url)
        self._prefix = prefix
        self._patience = patience
        self._held_until = -math.inf
        self._asking: set[asyncio.Task[Reason | None]] = set()

    async def use(self, valid: Valid, *, now: float) -> Reason | None:
        """Use a token up; "tokens" where Redis does not say in time whether it was new."""
        if asyncio.get_running_loop().time() < self._held_until:
            return "tokens"
        # To its end even if the client goes meanwhile: a connection with half an answer on it is good for nothing.
        asking = asyncio.ensure_future(self._ask(valid, now))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return await asyncio.shield(asking)

    async def close(self) -> None:
        """Close the connections, once what was asked is answered or given up."""
        if self._asking:
            await asyncio.wait(self._asking)
        await self._client.aclose()

    async def _ask(self, valid: Valid, now: float) -> Reason | None:
        from redis.exceptions import RedisError

        # Another proxy's clock may be behind this one's: to it, the token is good for longer.
        milliseconds = math.ceil((valid.expires - now + CLOCKS_DIFFER) * 1000)
        name = self._prefix + base64url.encode(valid.identity)
        try:
            # For a connection, for what is said at its beginning, and for the answer, all together.
            async with asyncio.timeout(self._patience):
                was_new = await self._client.set(name, b"", nx=True, px=milliseconds)
        except (RedisError, OSError):
            self._held_until = asyncio.get_running_loop().time() + _HOLD
            return "tokens"
        return None if was_new else "token_replayed"


def _client(url: str) -> "Redis":
    if importlib.util.find_spec("redis") is None:
        raise MissingExtra("redis", "remembering tokens in Redis")
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.exceptions import RedisError

    try:
        # A pool of one's own does not ask twice, unlike a client's: asked again, Redis would call a new token shown.
        # In version 2 of its protocol there are no messages that were not asked for, so that the pool looks whether
        # Redis has closed an idle connection before it is asked over that.
        pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, protocol=_PROTOCOL)
        pool.make_connection()  # type: ignore[no-untyped-call]  # which opens nothing, and knows all options
    except (ValueError, TypeError, RedisError):
        raise ConfigurationError("the token store is no URL of a Redis; try redis://127.0.0.1:6379/0") from None
    if str(pool.connection_kwargs["protocol"]) != str(_PROTOCOL):
        raise ConfigurationError(f"the token store is asked by protocol {_PROTOCOL}; leave that out of its URL")
    return Redis.from_pool(pool)
