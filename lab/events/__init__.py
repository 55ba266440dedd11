"""The event-driven world: single requests, each an event, at a station behind a law that limits them.

Clients send requests; a gate asks a law whether each starts, waits or is refused; the station serves those that have
started. Requests of a load cost what its `service` says, so that cheap and expensive ones can be mixed.
"""

from lab.events.settings import EventScenario
from lab.events.world import run

__all__ = ["EventScenario", "run"]
