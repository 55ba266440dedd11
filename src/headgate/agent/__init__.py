"""The agent's side: what a program that sends requests puts between itself and the network.

`Courtesy` is the one thing to make; the modules named after HTTP libraries put it into their clients: `httpx` (for
httpx2 as well), `aiohttp`, `requests` and `urllib`. `NoContact` is raised for a request that is held. `bundle` answers
requests out of bundles.
"""

from headgate.agent.courtesy import Courtesy
from headgate.errors import NoContact

__all__ = ["Courtesy", "NoContact"]
