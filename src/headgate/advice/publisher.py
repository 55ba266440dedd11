"""The document that an origin serves as its traffic advice (traffic-advice.txt, section 6)."""

from collections.abc import Iterable
from typing import Any

import msgspec

from headgate.advice.entry import Entry
from headgate.errors import ConfigurationError


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
