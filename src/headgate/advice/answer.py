"""What asking the cache about an origin gives (traffic-advice.txt, section 7)."""

from typing import TypeAlias

import msgspec

from headgate.advice.draw import permits
from headgate.advice.fetching import AdviceRequest
from headgate.advice.result import UNREACHABLE, AdviceEntry, AdviceResult
from headgate.release import ASAP


class Advice(msgspec.Struct, frozen=True):
    """What is known of the advice of one origin."""

    origin: str
    """Its serialisation."""

    result: AdviceResult
    """What the last fetch resulted in."""

    reason: str
    """Why it is that."""

    fresh_until: float
    """When the origin is to be asked again; `NEVER` for one that may not be asked."""

    hold_until: float = ASAP
    """The release time that an origin which was not reached gave with its Retry-After."""

    last: AdviceEntry | None = None
    """Of an origin that was not reached: what it advised before, up to 48 hours after that was no longer fresh."""

    @property
    def entry(self) -> AdviceEntry | None:
        """The entry to go by: an origin too busy to say that it wants no traffic still wants none."""
        return self.last if self.result is UNREACHABLE else self.result

    def release_time(self, draw: float) -> float:
        """Return the release time of the traffic that this number, from 0 to 1, was drawn for; `ASAP` where it may go.

        Traffic that is refused may try again, with the same number, when the origin has been asked again.
        """
        entry = self.entry
        refused = entry is not None and not permits(entry, draw)
        return max(self.hold_until, self.fresh_until) if refused else self.hold_until


class Fetch(msgspec.Struct, frozen=True):
    """An order to make one request and to report what came of it, with `AdviceCache.received` or `.abandoned`."""

    origin: str
    request: AdviceRequest
    give_up: float
    """The instant from which the fetch counts as abandoned."""


class Wait(msgspec.Struct, frozen=True):
    """The advice is being fetched, or may not be fetched yet. Ask again after the report, at the latest at `until`."""

    until: float


Answer: TypeAlias = Advice | Fetch | Wait
