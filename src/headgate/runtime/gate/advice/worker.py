"""Traffic advice in one process of a gate: it serves the document, counts, and reports to the loop.

The loop is in the same process, or with several workers in that of the supervisor.
"""

from collections.abc import Callable

from headgate.advice.fetch_log import FORGOTTEN_AFTER
from headgate.advice_control import document
from headgate.config import Configuration
from headgate.observe import AdviceState
from headgate.origin.gateway.advice_resource import AdviceResource
from headgate.origin.gateway.arrivals import ArrivalMeter
from headgate.runtime.gate.advice.entries import arrival_classes, static_entries, static_state
from headgate.runtime.gate.advice.messages import AdvicePublication, AdviceReport, OriginReport
from headgate.runtime.gate.advice.persistent_loop import PersistentLoop


class AdviceWorker:
    """What answers requests for the advice, and what counts the others; neither if nothing is published.

    `publication` is what a supervisor publishes; without it, a mode that computes has its loop here. It is `loop`, that
    of the configuration before, or a new one.
    """

    def __init__(
        self,
        tree: Configuration,
        publication: AdvicePublication | None,
        *,
        loop: PersistentLoop | None = None,
        now: float,
        log: Callable[[str], None],
    ) -> None:
        self.resource: AdviceResource | None = None
        self.arrivals: ArrivalMeter | None = None
        self.loop: PersistentLoop | None = None
        """What decides, if that is in this process."""
        self.section = tree.advice
        section = tree.advice
        if section.computes and publication is None:
            if loop is None:
                loop = PersistentLoop(section, workers=1, now=now, log=log)
            else:
                loop.reload(section, now=now)
            self.loop = loop
            publication = loop.publication
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

    def report(self, origin: OriginReport) -> AdviceReport:
        """Return what was counted since the last call."""
        assert self.resource is not None
        assert self.arrivals is not None
        arrivals = self.arrivals.take()
        return AdviceReport(
            self.resource.take_fetches(),
            [(name, agent, count) for (name, agent), count in arrivals.agents.items()],
            arrivals.people,
            origin,
        )

    async def tick(self, *, now: float) -> None:
        """Have the loop decide, if it is in this process, and publish the result."""
        publication = await self.loop.tick_and_save(now=now) if self.loop is not None else None
        if publication is not None:
            self.publish(publication, now=now)

    def state(self) -> tuple[AdviceState, ...]:
        """Return what is published; nothing in a worker whose supervisor decides."""
        if self.loop is not None:
            return self.loop.state()
        return () if self.section.computes else tuple(map(static_state, static_entries(self.section)))
