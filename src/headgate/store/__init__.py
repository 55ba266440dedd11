"""Where several masters share their histories: Redis or Valkey, one server or a cluster (extra `redis`).

`SharedMaster` is a master that adds its records to a `RedisStore`. It computes and publishes from its own memory, and
never waits for the store; the store returns the holds that follow from the records of all masters.
"""

from headgate.store.master import SharedMaster
from headgate.store.redis_store import RedisStore

__all__ = ["RedisStore", "SharedMaster"]
