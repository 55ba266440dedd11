"""Traffic advice in one process of a gate: it serves the document, counts, and reports to the loop.

The loop is in the same process, or with several workers in that of the supervisor.
"""

from collections.abc import Callable
from typing import NamedTuple

from headgate.advice import Entry, document
from headgate.config import Configuration
from headgate.config.advice_section import AdviceSection
from headgate.observe import AdviceState
from headgate.origin.gateway.advice_resource import AdviceResource
from headgate.origin.gateway.arrivals import ArrivalMeter
from headgate.runtime.gate.advice_loop import FORGOTTEN_AFTER, arrival_classes, static_state
from headgate.runtime.gate.advice_messages import AdvicePublication, AdviceReport
from headgate.runtime.gate.advice_service import AdviceService


class Outcomes(NamedTuple):
    """What became of requests since the last report."""

    admitted: int
    """Those that were passed to the origin."""
    failed: int
    """Those that did not reach it."""
    capacity: float
    """Requests per second that it completes, as learned; 0 if not known."""


class AdvicePart:
    """What answers requests for the advice, and what counts the others; neither if nothing is published.

    `publication` is what a supervisor publishes; without it, a mode that computes has its service here: `service`, that
    of the configuration before, or a new one.
    """

    def __init__(
        self,
        tree: Configuration,
        publication: AdvicePublication | None,
        *,
        service: AdviceService | None = None,
        now: float,
        log: Callable[[str], None],
    ) -> None:
        self.resource: AdviceResource | None = None
        self.arrivals: ArrivalMeter | None = None
        self.service: AdviceService | None = None
        """What decides, if that is in this process."""
        self.section = tree.advice
        section = tree.advice
        if section.computes and publication is None:
            if service is None:
                service = AdviceService(section, workers=1, now=now, log=log)
            else:
                service.reload(section, now=now)
            self.service = service
            publication = service.loop.publication
        if section.computes and publication is not None:
            self._start_computed(tree, publication, now=now)
        elif section.entry:
            self.resource = AdviceResource(document(static_entries(section)), max_age=section.freshness)

    def _start_computed(self, tree: Configuration, publication: AdvicePublication, *, now: float) -> None:
        section = tree.advice
        priorities = {domain.name: domain.priority for domain in tree.domain}
        classes = arrival_classes(section, priorities)
        self.arrivals = ArrivalMeter(classes, seconds=FORGOTTEN_AFTER * section.freshness)
        self.resource = AdviceResource(publication.document, max_age=section.freshness, is_computed=True)
        self.publish(publication, now=now)

    def publish(self, publication: AdvicePublication, *, now: float) -> None:
        """Serve a document from now on, and learn which agents have fetched it."""
        if self.resource is not None and self.arrivals is not None:
            self.resource.publish(publication.document, max_age=self.section.freshness, serial=publication.serial)
            self.arrivals.learn(publication.agents, now=now)

    def report(self, outcomes: Outcomes) -> AdviceReport:
        """Return what was counted since the last call."""
        assert self.resource is not None
        assert self.arrivals is not None
        arrivals = self.arrivals.take()
        return AdviceReport(
            self.resource.take_fetches(),
            [(name, agent, count) for (name, agent), count in arrivals.agents.items()],
            arrivals.people,
            outcomes.admitted,
            outcomes.failed,
            outcomes.capacity,
        )

    async def tick(self, outcomes: Outcomes, *, now: float) -> None:
        """Report to the loop in this process, have it decide, and publish the result."""
        assert self.service is not None
        self.service.loop.take(self.report(outcomes), now=now)
        publication = await self.service.tick(now=now)
        if publication is not None:
            self.publish(publication, now=now)

    def state(self) -> tuple[AdviceState, ...]:
        """Return what is published; nothing in a worker whose supervisor decides."""
        if self.service is not None:
            return self.service.loop.state()
        return () if self.section.computes else tuple(map(static_state, static_entries(self.section)))


def static_entries(section: AdviceSection) -> tuple[Entry, ...]:
    """Return the entries as they are written."""
    return tuple(each.entry() for each in section.entry)
