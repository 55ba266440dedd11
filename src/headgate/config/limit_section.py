"""The table [limit] of the file: the concurrency limit of `headgate serve`."""

from typing import Annotated, Literal

from msgspec import Meta

from headgate.config.section import ConfigSection, Format, SecondsOrZero

MAX_IN_FLIGHT = 1_000_000
_Places = Annotated[int, Meta(ge=1, le=MAX_IN_FLIGHT)]
MaxInFlight = Annotated[Annotated[int, Meta(ge=0, le=MAX_IN_FLIGHT)] | Literal["learned"], Format("N|learned")]
"""A number of requests, or learned from latencies; 0 sets no limit."""


class ConcurrencySection(ConfigSection, frozen=True):
    """How many requests the origin works on at once, and which of the others wait.

    Several workers have equal parts of `max`, `queue`, `floor` and `ceiling`, and each learns its own limit.
    """

    max: MaxInFlight = 0
    """Requests in flight at the origin at once, at most: a number, or learned from latencies; 0 for no limit. Further
    requests wait in a queue or are refused; WebSockets and event streams are not counted once they are open."""
    queue: Annotated[int, Meta(ge=0, le=MAX_IN_FLIGHT)] = 128
    """Requests that wait for a place at the origin, at most; from half of it on, more and more are refused. Below the
    capacity, queues of up to 64 requests come and go: 128 for each worker refuse none of them."""
    queue_target: SecondsOrZero = 0.01
    """Seconds that a request may wait under overload of the origin; or half the time of a request, if that is more."""
    mode: Literal["off", "monitor", "enforce"] = "enforce"
    """enforce; monitor to evaluate the limit and refuse nothing; off for no limit."""
    floor: _Places = 4
    """The smallest limit that is learned."""
    ceiling: _Places = 1_000
    """The largest limit that is learned."""
    freeze: bool = False
    """Keep a learned limit as it is."""
    healthy_latency: SecondsOrZero = 0.0
    """Seconds that a response may take to begin; longer ones lower a learned limit. 0 sets no bound."""

    refused_warning: Annotated[float, Meta(ge=3_600, le=2_678_400), Format("SECONDS")] = 86_400.0
    """Seconds for which most requests of a priority class are refused before the gate logs a warning: search engines
    remove pages that fail for one to two days."""

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self.max != 0 and self.mode != "off"


class Limit(ConfigSection, frozen=True):
    """Limits that follow from the load of the origin."""

    concurrency: ConcurrencySection = ConcurrencySection()
    """The concurrency limit."""
