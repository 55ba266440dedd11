"""A master and its store, as the configuration says: for a server that is a master, and for a gate that has one."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from headgate.config.store_url import StoreUrl
from headgate.limit import DelayUntil, Domain, Master
from headgate.observe import Counters, read_counters

if TYPE_CHECKING:
    from headgate.store import RedisStore


class MasterStore:
    """Makes masters that share their records through the store at `url`, a value of `master.store`.

    With "memory", masters share nothing, and all methods do nothing. `log` is called with lines for the operator.
    Raises `ConfigurationError` for an invalid URL, and `MissingExtra`.
    """

    def __init__(self, url: str, log: Callable[[str], None]) -> None:
        self.redis = _open(url, log)
        """The Redis store; None if masters share nothing."""

    def new_master(self, domains: Iterable[Domain], *, max_identifiers: int, max_delay: float) -> Master:
        """Make a master; `attach` it before it is used."""
        if self.redis is None:
            return Master(domains, max_identifiers=max_identifiers, max_delay=max_delay)
        from headgate.store import SharedMaster

        return SharedMaster(domains, self.redis.add, max_identifiers=max_identifiers, max_delay=max_delay)

    def attach(self, master: Master, publish: Callable[[DelayUntil], None]) -> None:
        """Have `publish` called with the holds that `master` learns from the store."""
        if self.redis is not None:
            from headgate.store import SharedMaster

            assert isinstance(master, SharedMaster)
            self.redis.attach(master, publish)

    def start(self) -> None:
        """Connect to the store, in the running event loop."""
        if self.redis is not None:
            self.redis.start()

    async def close(self) -> None:
        """Disconnect."""
        if self.redis is not None:
            await self.redis.close()

    @property
    def state(self) -> str:
        """Return `memory`, or the state of the store."""
        return "memory" if self.redis is None else self.redis.state

    def counters(self) -> Counters:
        """Return the counters of the store; empty without a store."""
        return {} if self.redis is None else read_counters(("store", self.redis.counters))

    def groups(self) -> list[tuple[str, type[Struct]]]:
        """Return the group of these counters; none without a store."""
        return [] if self.redis is None else [("store", type(self.redis.counters))]


def _open(url: str, log: Callable[[str], None]) -> "RedisStore | None":
    parsed = StoreUrl.parse(url)
    if parsed is None:
        return None
    from headgate.store import RedisStore

    return RedisStore(parsed, log=log)
