"""What an origin publishes as its traffic advice: the entries its operator writes, and the document made of them.

The document is described in sections 4 and 6 of traffic-advice.txt.
"""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from headgate.errors import fail_if


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The advice for one kind of agent; raises `ConfigurationError` for an invalid field."""

    user_agent: str
    """The agents it is for: a brand name, `prefetch-proxy`, or `*` for every agent that respects traffic advice."""

    disallow: bool = False
    """Whether all traffic is discouraged at this time."""

    fraction: float = 1.0
    """The part of the possible traffic that is wanted, from 0 to 1; 0.1 asks for about a tenth."""

    def __post_init__(self) -> None:
        fail_if(
            not self.user_agent.strip(), "advice.user_agent is empty; name an agent, 'prefetch-proxy', or '*' for all"
        )
        # Section 6, step 8.2: agents ignore a fraction outside 0 to 1.
        fail_if(
            not (math.isfinite(self.fraction) and 0 <= self.fraction <= 1),
            f"advice.fraction of {self.user_agent!r} must be from 0 to 1, got {self.fraction}",
        )

    @classmethod
    def of(cls, user_agent: str, wanted: float) -> "Entry":
        """Return the entry with a fraction; one that disallows, if nothing is wanted."""
        return cls(user_agent, fraction=wanted) if wanted > 0.0 else cls(user_agent, disallow=True)

    @property
    def wanted(self) -> float:
        """The part of the possible traffic that is wanted: the fraction, 0 if all traffic is discouraged."""
        return 0.0 if self.disallow else self.fraction


def document(entries: Iterable[Entry]) -> bytes:
    """Return the document with these entries, without members that have the default value.

    Raises `ConfigurationError` if two entries name the same agent: an agent uses the first only (section 6, step 4.5).
    """
    written: dict[str, dict[str, Any]] = {}
    for entry in entries:
        fail_if(entry.user_agent in written, f"advice.user_agent {entry.user_agent!r} appears twice; make it one entry")
        written[entry.user_agent] = _item(entry)
    return msgspec.json.encode(list(written.values()))


def _item(entry: Entry) -> dict[str, Any]:
    """Return one entry as the map of section 6; a fraction of -0.0 is 0."""
    item: dict[str, Any] = {"user_agent": entry.user_agent}
    if entry.disallow:
        item["disallow"] = True
    if entry.fraction < 1:
        item["fraction"] = abs(entry.fraction)
    return item
