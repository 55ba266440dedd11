"""Small scenarios of the event-driven world."""

from typing import Any

import msgspec

from lab.events.settings import EventScenario


class Request:
    """A request as a law sees it."""

    def __init__(self, flow: str = "visitors", priority: str = "people") -> None:
        self.flow, self.priority = flow, priority


def scenario(**keys: Any) -> EventScenario:
    """Return a station of one server and 1 s, asked at even distances; the keys are those that a test changes."""
    document = {
        "description": "A test.",
        "world": "events",
        "policies": ["none", "fixed"],
        "seconds": 10.0,
        "station": {"servers": 1, "service": {"mean": 1.0}},
        "loads": [{"name": "visitors", "arrivals": "even", "load": 0.5}],
        **keys,
    }
    made = msgspec.convert(document, EventScenario)
    made.check()
    return made
