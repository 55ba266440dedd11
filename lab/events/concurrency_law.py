"""The law `concurrency`: the concurrency limit of the cores."""

from collections.abc import Mapping, Sequence

from headgate.errors import ConfigurationError
from headgate.limit import concurrency
from headgate.limit.concurrency import PRIORITIES, ConcurrencyLimit, ConcurrencySettings, Waiting
from lab.chance import Draw
from lab.events.laws import NOTHING, Arriving, Decision, Outcome
from lab.ranges import Section


class WaitingInLab(Waiting):
    """A request of the lab that got no permit."""

    __slots__ = ("request",)

    def __init__(self, request: Arriving, since: float) -> None:
        priority = next((one for one in PRIORITIES if one == request.priority), None)
        if priority is None:
            raise ConfigurationError(
                f"loads.{request.flow}.priority: unknown priority {request.priority!r};"
                f" expected one of {', '.join(PRIORITIES)}"
            )
        super().__init__(priority, request.flow.encode(), since)
        self.request = request


class ConcurrencyLaw:
    """Requests in flight are limited by a `ConcurrencyLimit`, all in one domain; each load is a flow."""

    class Settings(ConcurrencySettings, Section, frozen=True, kw_only=True):
        """Those of the limit."""

    def __init__(self, settings: Settings, draw: Draw) -> None:
        self._limit = ConcurrencyLimit(settings, draw)
        self._waiting: dict[Arriving, WaitingInLab] = {}

    @property
    def wakeup(self) -> float:
        """The instant at which the limit wants to be called."""
        return self._limit.wakeup

    def arrived(self, request: Arriving, *, now: float) -> Sequence[Decision]:
        """Start it, or let the limit decide what becomes of it."""
        if self._limit.start():
            return (Decision(request, starts=True),)
        waiting = self._waiting[request] = WaitingInLab(request, now)
        return self._carry_out(self._limit.queue(waiting, now=now))

    def completed(self, _request: Arriving, latency: float, _outcome: Outcome, *, now: float) -> Sequence[Decision]:
        """Release its permit; a timeout has a latency, too."""
        self._limit.responded(latency)
        return self._carry_out(self._limit.end(now=now))

    def left(self, request: Arriving, *, now: float) -> Sequence[Decision]:
        """Remove it from the queue."""
        return self._carry_out(self._limit.leave(self._waiting.pop(request), now=now))

    def awake(self, *, now: float) -> Sequence[Decision]:
        """Do what was due at `wakeup`."""
        return self._carry_out(self._limit.awake(now=now))

    def signals(self) -> Mapping[str, float]:
        """Return the state of the limit."""
        state = self._limit.state
        return {
            "queued": float(state.queued),
            "limit": state.limit,
            "latency": state.latency,
            "learned_capacity": state.capacity,
        }

    def _carry_out(self, decisions: Sequence[concurrency.Decision]) -> Sequence[Decision]:
        return [self._decision(one) for one in decisions] if decisions else NOTHING

    def _decision(self, decision: concurrency.Decision) -> Decision:
        waiting = decision.request
        assert isinstance(waiting, WaitingInLab)  # the one that the limit was given
        del self._waiting[waiting.request]
        return Decision(waiting.request, starts=decision.starts, retry_after=decision.retry_after)
