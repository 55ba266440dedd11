"""The permits of requests in flight, and the queue for them: the part that the gateway and both middlewares share.

A request holds its permit until its exchange is complete, whatever takes the time: an upload, a download, an event
stream. The gateway has it begin after an upload, and end before the download of a slow client. The limit itself is in
`headgate.limit.concurrency`; this module adds the clock, calls the requests, and logs when the limit begins to reject
requests (`ConcurrencyWatch`).
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from headgate.limit.concurrency import (
    ConcurrencyLimit,
    ConcurrencySettings,
    ConcurrencyState,
    Decision,
    Priority,
    Waiting,
)
from headgate.release import NEVER

CallLater = Callable[[float, Callable[[], None]], object]
"""Sets a timer: seconds, and what to call then."""
_MIN_TIMER: Final = 0.001
_LOST_TIMER: Final = 1.0
"""Seconds after which a timer is not awaited any more: its event loop has ended. Tests often have one for each case."""
_logger = logging.getLogger("headgate.origin")


class Permit:
    """The right of one request to be in flight."""

    __slots__ = ("_is_held", "_permits", "_responded", "counts_response", "started")

    def __init__(self, permits: "Permits") -> None:
        self._permits = permits
        self._is_held = True
        self._responded = False
        self.started = permits.clock()
        """Since when the response is awaited."""
        self.counts_response = True
        """Whether the request is in flight until its exchange is complete, not only until its response begins."""

    @property
    def outlives_client(self) -> bool:
        """Whether it is held although the client has left."""
        return self._permits.limit.settings.abandoned == "hold"

    def body_received(self) -> None:
        """Take that a part of the request body has arrived: until then its client was awaited, not the response."""
        self.started = self._permits.clock()

    def responded(self) -> None:
        """Take that the response has begun."""
        if not self._responded:
            self._responded = True
            now = self._permits.clock()
            self._permits.limit.responded(now - self.started)
            if not self.counts_response:
                self._permits.carry_out(self._permits.limit.uncount(now=now))

    def release(self, *, measured: bool = True) -> None:
        """End the exchange, if that has not been done; `measured` tells that the origin has answered, or timed out."""
        if self._is_held:
            self._is_held = False
            if measured:
                self.responded()
            if self._responded and not self.counts_response:
                self._permits.limit.uncounted -= 1
            else:
                self._permits.carry_out(self._permits.limit.end(now=self._permits.clock()))


class QueuedRequest(Waiting):
    """A request that waits for a permit; `wake` is called once, when it is decided on later than by `Permits.queue`."""

    __slots__ = ("is_decided", "permit", "retry_after", "wake")

    def __init__(self, priority: Priority, flow: bytes, since: float, wake: Callable[[], None]) -> None:
        super().__init__(priority, flow, since)
        self.wake = wake
        self.is_decided = False
        self.permit: Permit | None = None
        """The permit, if it may start."""
        self.retry_after = 0.0
        """Seconds after which its client is to return, if it is rejected."""


class Permits:
    """Issues the permits of one limit; without `call_later`, its caller calls `wake` when that is due."""

    def __init__(
        self,
        limit: ConcurrencyLimit,
        *,
        clock: Callable[[], float] = time.monotonic,
        call_later: CallLater | None = None,
    ) -> None:
        self.limit = limit
        self.clock = clock
        self._call_later = call_later
        self._due = NEVER  # the instant of the timer

    def take(self) -> Permit | None:
        """Return a permit; None if none is free. Called once for each request."""
        return Permit(self) if self.limit.start() else None

    def queue(self, request: QueuedRequest) -> None:
        """Queue a request that got no permit; it may be decided on at once."""
        self.carry_out(self.limit.queue(request, now=request.since), own=request)

    def leave(self, request: QueuedRequest) -> None:
        """Give up a request that has not started: its client has left."""
        if request.permit is not None:
            request.permit.release(measured=False)
        elif not request.is_decided:
            self.carry_out(self.limit.leave(request, now=self.clock()))

    def expire(self, request: QueuedRequest) -> None:
        """Reject a request that has waited for too long."""
        self.carry_out(self.limit.expire(request, now=self.clock()))

    def reconfigure(self, settings: ConcurrencySettings) -> None:
        """Put other settings in force; the learned limit and the waiting requests stay."""
        self.carry_out(self.limit.reconfigure(settings, now=self.clock()))

    def wake(self) -> None:
        """Do what is due."""
        now, self._due = self.clock(), NEVER
        self.carry_out(self.limit.awake(now=now) if now >= self.limit.wakeup else ())

    def carry_out(self, decisions: Iterable[Decision], own: QueuedRequest | None = None) -> None:
        """Start or reject the requests that are decided on, and set the timer for further ones; `own` is not woken."""
        for decision in decisions:
            request = decision.request
            assert isinstance(request, QueuedRequest)
            request.is_decided, request.retry_after = True, decision.retry_after
            request.permit = Permit(self) if decision.starts else None
            try:
                if request is not own:
                    request.wake()
            except Exception:  # a defect must cost neither the permit nor the other decisions
                _logger.exception("a waiting request could not be decided")
                self.leave(request)
        if self.limit.wakeup < NEVER and self._call_later is not None:
            due, now = self.limit.wakeup, self.clock()
            if not now - _LOST_TIMER < self._due <= due:
                self._due = due
                self._call_later(max(_MIN_TIMER, due - now), self.wake)


WATCH_INTERVAL: Final = 1.0
"""Seconds between two looks."""
PAUSE: Final = 10.0
"""Seconds without a rejection before rejections have ended."""


class ConcurrencyWatch:
    """Compares each state with the last one; `log` is called with the lines."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self.due = 0.0
        """When the next look is useful."""
        self._rejected = 0
        self._rejected_at = 0.0
        self._rejects = False

    def look(self, state: ConcurrencyState, *, now: float) -> None:
        """Log what has changed."""
        self.due = now + WATCH_INTERVAL
        rejected = sum(sum(reasons.values()) for reasons in state.rejected.values())
        if rejected != self._rejected:
            self._rejected, self._rejected_at = rejected, now
        rejects = rejected > 0 and now - self._rejected_at < PAUSE
        if rejects != self._rejects:
            self._rejects = rejects
            verb = "would reject" if state.mode == "monitor" else "rejects"
            what = f"{verb} requests" if rejects else "rejects no more requests"
            now_there = f"limit {state.limit:.0f}, {state.in_flight} in flight, {state.queued} wait"
            self._log(f"concurrency limit: {what} ({now_there}, {rejected} rejected so far)")
