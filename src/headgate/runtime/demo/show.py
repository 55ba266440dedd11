"""Runs the phases of the demonstration, and reports to a view what happens."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.runtime.demo.agents import CRAWLER_BRAND
from headgate.runtime.demo.measure import PhaseResult, Tally, phase_result
from headgate.runtime.demo.plan import Kind, Phase, Plan
from headgate.runtime.demo.site import Site, running_site
from headgate.runtime.lifecycle import run_event_loop

FRAME_SECONDS: Final = 0.5
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Frame(NamedTuple):
    """What happened since the last frame."""

    phase: Phase
    offered: float
    """Requests per second that clients wanted to send."""
    sent: float
    """Those that were sent."""
    served: float
    """Those that were answered in time."""
    people_served: float
    """The part of the requests of people that was served."""
    fraction: float | None
    """The published fraction of automated traffic; None without a gate."""
    limit: float | None
    """The concurrency limit of the gate; None without one."""
    queued: int = 0
    """Requests that wait for a place there."""
    elapsed: float = 0.0
    """Seconds since the begin of the phase."""
    seconds: float = 0.0
    """Seconds that the phase takes."""


View: TypeAlias = Callable[[Phase | Frame | PhaseResult], None]
"""Shows the begin of a phase, a frame, or the figures of a phase; may raise `OSError` if nothing can be shown."""


def run_show(plan: Plan, view: View) -> list[PhaseResult]:
    """Run the demonstration and return the figures of its phases.

    SIGINT, SIGTERM and SIGHUP stop it, and then do what they do to a process by default. Raises `DemoError` if one of
    its processes fails, and what the view raises. In every case, all processes have ended then, and all files are
    removed.
    """
    results: list[PhaseResult] = []
    received: list[int] = []

    async def main() -> int:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            if not received:  # later signals do not interrupt the cleanup
                task.cancel()
            received.append(number)

        for number in _STOPPING:
            loop.add_signal_handler(number, stop, number)
        with suppress(asyncio.CancelledError):
            async with running_site(plan) as site:
                await _Show(site, plan, view, results).run()
        for number in _STOPPING:
            loop.remove_signal_handler(number)  # uvloop does not when it is closed
        return 0

    run_event_loop(main)
    if received:
        signal.raise_signal(received[0])
    return results


class _Show:
    """The phases, one after another, at one site."""

    def __init__(self, site: Site, plan: Plan, view: View, results: list[PhaseResult]) -> None:
        self._site = site
        self._plan = plan
        self._view = view
        self._results = results
        self._clock = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Run all phases."""
        phases = self._plan.phases
        for index, phase in enumerate(phases):
            await self._prepare(phase, phases[index - 1] if index else phase)
            self._results.append(await self._run(phase, phases[index + 1] if index + 1 < len(phases) else phase))
            self._view(self._results[-1])

    async def _prepare(self, phase: Phase, earlier: Phase) -> None:
        """Announce a phase, and have an origin without old work, where it has one."""
        self._view(phase)
        if phase.has_origin and phase.has_gate and not earlier.has_gate:
            await self._site.kill_origin()
        if phase.has_origin:
            await self._site.start_origin()

    async def _run(self, phase: Phase, following: Phase) -> PhaseResult:
        """Run a phase, and return its figures."""
        site, plan, before, began = self._site, self._plan, await self._site.tallies(), self._clock()
        if not phase.has_origin:
            await site.kill_origin()
        await site.direct(phase.load, phase)
        fraction = await self._watch(phase, until=began + plan.seconds * phase.part)
        seconds = self._clock() - began
        if following.has_gate != phase.has_gate:
            # Requests on their way get their responses, and count for this phase; those that take longer are lost.
            await site.direct({}, phase)
            await asyncio.sleep(2 * plan.service_time)
            await site.direct({}, following)
        counted = difference(await site.tallies(), before)
        return phase_result(
            phase.name,
            total(counted),
            counted["people"],
            seconds=seconds,
            capacity=plan.capacity,
            deadline=plan.deadline,
            fraction=fraction,
        )

    async def _watch(self, phase: Phase, *, until: float) -> float | None:
        """Show frames until the end of a phase; return the last fraction."""
        began = then = self._clock()
        fraction, before = None, await self._site.tallies()
        while (left := until - self._clock()) > 0.0:
            await asyncio.sleep(min(FRAME_SECONDS, left))
            now, tallies = self._clock(), await self._site.tallies()
            state = await self._site.gate_state() if phase.has_gate else {}
            fraction = published_fraction(state)
            self._view(
                new_frame(phase, difference(tallies, before), state, since=now - then)._replace(
                    elapsed=now - began, seconds=until - began
                )
            )
            then, before = now, tallies
        return fraction


def difference(after: dict[Kind, Tally], before: dict[Kind, Tally]) -> dict[Kind, Tally]:
    """Return what each kind of clients counted between two states."""
    return {kind: tally.minus(before[kind]) for kind, tally in after.items()}


def total(tallies: dict[Kind, Tally]) -> Tally:
    """Return the sum over all kinds of clients."""
    return reduce(Tally.plus, tallies.values(), Tally())


def new_frame(phase: Phase, counted: dict[Kind, Tally], state: dict[str, Any], *, since: float) -> Frame:
    """Return the frame of what was counted in the last `since` seconds, and of a gate's state."""
    everyone, concurrency = total(counted), state.get("concurrency") or {}
    return Frame(
        phase,
        offered=everyone.offered / since,
        sent=everyone.sent / since,
        served=everyone.served / since,
        people_served=counted["people"].served_part,
        fraction=published_fraction(state),
        limit=concurrency.get("limit"),
        queued=concurrency.get("queued", 0),
    )


def published_fraction(state: dict[str, Any]) -> float | None:
    """Return the part of automated traffic that a gate's advice admits, from its state; None without advice.

    It is the mean over the classes that fetch advice, by their demand.
    """
    fetching = [entry for entry in state.get("advice") or () if entry["user_agent"] != CRAWLER_BRAND]
    entries = [(float(entry["published"]), float(entry["demand"] or 0.0)) for entry in fetching]
    if not entries:
        return None
    demand = sum(demand for _, demand in entries)
    if not demand:
        return sum(fraction for fraction, _ in entries) / len(entries)
    return round(sum(fraction * demand for fraction, demand in entries) / demand, 4)
