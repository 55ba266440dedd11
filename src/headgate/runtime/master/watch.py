"""Warnings about what a master receives: unknown domains, and clocks that differ. Each is logged once."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from headgate.link import MasterLink

_INTERVAL: Final = 1.0
_MAX_SKEW: Final = 1.0
"""Seconds; a larger difference of clocks is logged."""


class Watch:
    """Looks at the master of `link`, and logs what the operator should correct."""

    def __init__(self, link: MasterLink, log: Callable[[str], None]) -> None:
        self._link = link
        self._log = log
        self._names: set[str] = set()
        self._skews: set[str] = set()

    async def run(self) -> None:
        """Check every second, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            self.check(time.time())

    def check(self, now: float) -> None:
        """Log what is new since the last check."""
        master = self._link.master
        # The master keeps a limited number of names, and a reload removes those that are configured then.
        for name in sorted(master.unknown_names - self._names):
            # As repr, because the name is untrusted: control characters must not reach a terminal.
            self._warn(f"gatekeepers use the domain {name!r}, which is not configured; its requests are not limited")
        self._names = set(master.unknown_names)
        ages = self._link.ages.read(now)
        if ages is not None and ages.least < -_MAX_SKEW:
            self._warn_once(
                "ahead", f"the clock of a gatekeeper is {-ages.least:.1f} s ahead of this machine's, or more"
            )
        if ages is not None and ages.greatest > _MAX_SKEW:
            self._warn_once(
                "behind",
                f"accounting arrived {ages.greatest:.1f} s after its request: the clock of a gatekeeper is behind this "
                "machine's, or the network is slow",
            )

    def _warn_once(self, skew: str, sentence: str) -> None:
        if skew not in self._skews:
            self._skews.add(skew)
            self._warn(sentence)

    def _warn(self, sentence: str) -> None:
        self._log(f"headgate: warning: {sentence}")
