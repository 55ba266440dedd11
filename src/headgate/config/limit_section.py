"""The table [limit] of the file: the concurrency limit of `headgate serve`."""

from typing import Annotated, Literal

from msgspec import Meta

from headgate.config.section import ConfigSection, File, Format, SecondsOrZero

MAX_IN_FLIGHT = 1_000_000
MaxInFlight = Annotated[Annotated[int, Meta(ge=0, le=MAX_IN_FLIGHT)] | Literal["learned"], Format("N|learned")]
"""A number of requests, or learned from latencies; 0 sets no limit."""


class ConcurrencySection(ConfigSection, frozen=True):
    """How many requests are in flight at the origin at once, and which of the others wait.

    Several workers have equal parts of `max`, `queue` and `ceiling`, and each learns its own limit.
    """

    max: MaxInFlight = 0
    """Requests in flight at the origin at once, at most: a number, or learned from latencies, which needs
    healthy_latency; 0 for no limit. A request is in flight until its exchange with the origin is complete, event
    streams included; an open WebSocket is not. Further requests wait in a queue or are rejected."""
    queue: Annotated[int, Meta(ge=0, le=MAX_IN_FLIGHT)] = 128
    """Requests that wait for a permit, at most. An origin below its capacity has short queues of up to 64 requests; set
    128 for each worker to reject none of these."""
    mode: Literal["off", "monitor", "enforce"] = "enforce"
    """enforce; monitor to compute the limit and reject nothing; off for no limit."""
    ceiling: Annotated[int, Meta(ge=1, le=MAX_IN_FLIGHT)] = 1_000
    """The largest limit that is learned."""
    healthy_latency: SecondsOrZero = 0.0
    """Mean seconds until responses begin that a learned limit permits, such as twice the usual latency of a response. A
    learned limit needs it; 0 is for a number as max."""
    abandoned: Literal["release", "hold"] = "release"
    """What becomes of the permit of a request whose client leaves before the response: release it; or hold it until the
    origin answers or gate.timeouts.response has passed, for origins that do not notice that the client has left."""

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self.max != 0 and self.mode != "off"


class Limit(ConfigSection, frozen=True):
    """Limits that follow from the load of the origin, and what a restart keeps of the others."""

    concurrency: ConcurrencySection = ConcurrencySection()
    """The concurrency limit."""
    snapshot: File = "auto"
    """File in which `headgate serve` saves what clients have used of the rules, every `master.snapshot_interval`
    seconds and at its end, and from which it starts; for `gate.master` embedded and `master.store` memory. auto is a
    file beside the configuration file, such as headgate.snapshot beside headgate.toml; empty disables it."""
