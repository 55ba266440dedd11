"""The agent's side: what a program that sends requests puts between itself and the network.

`Courtesy` is the one object to make; the modules named after HTTP libraries put it into their clients: `httpx` (for
httpx2 as well), `aiohttp`, `requests`, `niquests`, `scrapy` and `urllib`. `RetryLater` is raised for a request that is
held. `SharedThrottle` is a throttle that several processes have in common. `bundle` answers requests out of bundles.

Inside: `courtesy` is the facade; `attempt` is one request, and `state` what requests share; `transport` is what the
transports share. `advice_client` decides which origin is asked for advice when. `shared_throttle` stands on
`shared_store`, `shared_file` and `shared_database`.
"""

from typing import TYPE_CHECKING

from headgate.agent.courtesy import Courtesy
from headgate.agent.retry import Retry
from headgate.agent.state import Event
from headgate.errors import RetryLater

if TYPE_CHECKING:
    from headgate.agent.shared_throttle import SharedThrottle

__all__ = ["Courtesy", "Event", "Retry", "RetryLater", "SharedThrottle"]


def __getattr__(name: str) -> object:
    """Import what needs SQLite when it is asked for."""
    if name == "SharedThrottle":
        from headgate.agent.shared_throttle import SharedThrottle

        return SharedThrottle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
