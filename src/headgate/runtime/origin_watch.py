"""Lines about origins at which requests fail; reads no clock."""

from collections.abc import Callable, Mapping
from typing import Final

INTERVAL: Final = 10.0
"""Seconds between two lines about one origin."""


class OriginWatch:
    """Compares the failures of each origin with those that were logged last; `log` is called with the lines."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._logged: dict[str, tuple[float, Mapping[str, int]]] = {}

    def look(self, failures: Mapping[str, Mapping[str, int]], *, now: float) -> None:
        """Log what has failed; `failures` counts by origin and reason, `now` is of a clock that is never set back."""
        self._logged = {name: one for name, one in self._logged.items() if name in failures}
        for name, counts in failures.items():
            when, before = self._logged.get(name, (-INTERVAL, {}))
            new = {reason: count - before.get(reason, 0) for reason, count in counts.items()}
            listed = ", ".join(f"{reason} {count}" for reason, count in new.items() if count > 0)
            if listed and now - when >= INTERVAL:
                self._log(f"warning: origin {name}: requests fail ({listed})")
                self._logged[name] = now, dict(counts)
