"""What an origin publishes as its traffic advice: the entries its operator writes, and the document made of them.

The document is described in sections 4 and 6 of traffic-advice.txt, its path and media type in section 10.
"""

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from headgate.errors import ConfigurationError

PATH: Final = "/.well-known/traffic-advice"
"""Where agents ask for it, on every origin (section 10.1)."""

MEDIA_TYPE: Final = "application/trafficadvice+json"
"""What it must be sent as: agents read null from anything else (section 5, processResponse step 8)."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one kind of agent is advised; raises `ConfigurationError` when a field cannot be meant."""

    user_agent: str
    """Whom it is for: a brand name, `prefetch-proxy`, or `*` for every agent that respects traffic advice."""

    disallow: bool = False
    """Whether traffic is discouraged altogether at this time."""

    fraction: float = 1.0
    """How much of the possible traffic is wanted, from 0 to 1; 0.1 asks for about a tenth."""

    def __post_init__(self) -> None:
        if not self.user_agent.strip():
            raise ConfigurationError("advice.user_agent is empty; name an agent, 'prefetch-proxy', or '*' for all")
        if not (math.isfinite(self.fraction) and 0 <= self.fraction <= 1):
            # Section 6, step 8.2: a fraction outside 0 to 1 is passed over, so writing one would say nothing.
            raise ConfigurationError(
                f"advice.fraction of {self.user_agent!r} is {self.fraction}, not from 0 to 1; try 0.1 for a tenth"
            )


def document(entries: Iterable[Entry]) -> bytes:
    """Write `entries` as the JSON list agents read, in UTF-8, leaving out what is the default.

    Raises `ConfigurationError` when two entries name the same agent: an agent takes the first and never sees the
    other (section 6, step 4.5).
    """
    written: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.user_agent in written:
            raise ConfigurationError(f"advice.user_agent {entry.user_agent!r} appears twice; make it one entry")
        written[entry.user_agent] = _item(entry)
    return msgspec.json.encode(list(written.values()))


def _item(entry: Entry) -> dict[str, Any]:
    """Turn one entry into the map of section 6; a fraction of -0.0 is 0."""
    item: dict[str, Any] = {"user_agent": entry.user_agent}
    if entry.disallow:
        item["disallow"] = True
    if entry.fraction < 1:
        item["fraction"] = abs(entry.fraction)
    return item
