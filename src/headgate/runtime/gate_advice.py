"""Traffic advice in a gate: each process serves the document and counts requests; one loop computes the fractions.

The loop is in the process of the gate, or with several workers in their supervisor, to which they report.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from headgate.advice.identity import EVERY_AGENT, PREFETCH_PROXY
from headgate.advice_control import Entry, HistoryLaw, LawSettings, Reason, document
from headgate.config import Configuration
from headgate.config.advice_section import AdviceSection
from headgate.observe import AdviceState
from headgate.origin.gateway.arrivals import ArrivalClasses, ArrivalMeter
from headgate.origin.gateway.responses import AdviceResource

_DOWN: Final = 0.2
"""The part of a period's requests that did not reach the origin, from which on it counts as down."""
_REPORT_INTERVAL: Final = 1.0
_REPORTS: Final = 100
"""Reports in a max-age, at least."""
_DIGITS: Final = 6
_RATE_DIGITS: Final = 3


class AdviceReport(msgspec.Struct, frozen=True, tag=True):
    """What a process has counted since its last report."""

    arrivals: dict[str, int] = {}
    """Requests by class; those of people have an empty name."""
    rejected: int = 0
    """Requests that rules have rejected; the others were sent to the origin."""
    failed: int = 0
    """Requests that did not reach the origin. One that is too slow may be overloaded, and is not counted."""
    capacity: float = 0.0
    """Requests per second that the origin completes for this process, as learned; 0 if not known."""


class AdvicePublication(msgspec.Struct, frozen=True, tag=True):
    """The document to serve from now on."""

    document: bytes


class AdviceLoop:
    """Computes the fractions of the entries that ask for it, for so many `workers`.

    It has a clock that is never set (`time.monotonic`). `log` is called with a line for each change.
    """

    def __init__(self, section: AdviceSection, *, workers: int, now: float, log: Callable[[str], None]) -> None:
        self._workers = workers
        self._log = log
        self._logged: object = None
        self._capacities: dict[int, float] = {}
        self._admitted = self._failed = 0
        self._section = section
        self._settings = _law_settings(section)
        self._law = HistoryLaw(self._settings)
        self._law.update(now=now, capacity=0.0)

    def reload(self, section: AdviceSection, *, now: float) -> None:
        """Apply another configuration; a law with other settings starts with the fractions that are published."""
        start, self._section = self.entries, section
        if _law_settings(section) != self._settings:
            self._settings = _law_settings(section)
            self._law = HistoryLaw(self._settings, start=start)
            self._law.update(now=now, capacity=0.0)

    @property
    def capacity(self) -> float:
        """The capacity in requests per second; 0 as long as it is not learned."""
        learned = sum(self._capacities.values()) * self._workers / max(1, len(self._capacities))
        return learned if self._section.rate is None else self._section.rate

    @property
    def publication(self) -> AdvicePublication:
        """What is published."""
        return AdvicePublication(document(self.entries))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of the document."""
        computed = {entry.user_agent: entry for entry in self._law.entries}
        if self._section.mode == "monitor":
            computed.clear()
        return tuple(computed.get(each.user_agent) or each.entry() for each in self._section.entries)

    def take(self, report: AdviceReport, *, worker: int = 0) -> None:
        """Add what a process has counted."""
        for name, count in report.arrivals.items():
            self._law.arrived(name, count)
        self._admitted += sum(report.arrivals.values()) - report.rejected
        self._failed += report.failed
        if report.capacity > 0.0:
            self._capacities[worker] = report.capacity

    def tick(self, *, now: float) -> AdvicePublication | None:
        """Decide, if a period has ended; return the new document, None if it is the same."""
        if not self._law.is_due(now=now):
            return None
        before = self.entries
        # While the origin is down, agents back off, which shows no demand.
        down = self._failed > 0 and self._failed >= _DOWN * self._admitted
        self._admitted = self._failed = 0
        self._law.update(now=now, capacity=self.capacity, frozen=down or self.capacity <= 0.0)
        self._log_change()
        return self.publication if self.entries != before else None

    def state(self) -> tuple[AdviceState, ...]:
        """Return what is published for each class, and why."""
        computed = {
            name: AdviceState(
                user_agent=name,
                fraction=round(fraction, _DIGITS),
                demand=round(demand, _RATE_DIGITS),
                arrivals=round(arrivals, _RATE_DIGITS),
                in_force=round(in_force, _DIGITS),
                reason=reason,
            )
            for name, fraction, demand, arrivals, in_force, reason in self._law.explain()
        }
        return tuple(
            msgspec.structs.replace(computed[entry.user_agent], published=entry.wanted)
            if entry.user_agent in computed
            else _static_state(entry)
            for entry in self.entries
        )

    def _log_change(self) -> None:
        known = tuple((each.agent_class, each.fraction, each.reason is Reason.FROZEN) for each in self._law.explain())
        if known != self._logged:
            self._logged = known
            text = ", ".join(f"{each.agent_class} {each.fraction:.3g} ({each.reason})" for each in self._law.explain())
            self._log(f"traffic advice: {text}{', not published' if self._section.mode == 'monitor' else ''}")


def make_loop(
    tree: Configuration, before: AdviceLoop | None, *, workers: int, log: Callable[[str], None]
) -> AdviceLoop | None:
    """Return the loop of a configuration: `before`, of the configuration before, or a new one; None in mode static."""
    if not tree.advice.computes:
        return None
    if before is None:
        return AdviceLoop(tree.advice, workers=workers, now=time.monotonic(), log=log)
    before.reload(tree.advice, now=time.monotonic())
    return before


class GateAdvice:
    """What answers requests for the advice in one process, and what counts the others; neither without entries.

    `publication` is what the loop publishes at present, here or in a supervisor.
    """

    def __init__(self, tree: Configuration, publication: AdvicePublication | None) -> None:
        self._section = tree.advice
        self.resource: AdviceResource | None = None
        self.arrivals: ArrivalMeter | None = None
        if publication is not None:
            self.arrivals = ArrivalMeter(arrival_classes(tree))
            max_age = self._section.freshness
            self.resource = AdviceResource(publication.document, max_age=max_age, is_computed=True)
        elif self._section.entry:
            self.resource = AdviceResource(document(_static_entries(tree)), max_age=self._section.freshness)

    def publish(self, publication: AdvicePublication) -> None:
        """Serve a document from now on."""
        if self.resource is not None:
            self.resource.publish(publication.document, max_age=self._section.freshness)


def report_interval(tree: Configuration) -> float:
    """Return the seconds between two reports of a process."""
    return min(_REPORT_INTERVAL, tree.advice.freshness / _REPORTS)


def arrival_classes(tree: Configuration) -> ArrivalClasses:
    """Return the classes of requests: a domain without an entry belongs to that of its priority."""
    entries = tree.advice.entries
    domains: dict[str | None, str] = {name: entry.user_agent for entry in entries for name in entry.domains}
    classes = ArrivalClasses(tuple(entry.user_agent for entry in entries), domains)
    for domain in tree.domain:
        if domain.name not in domains and domain.priority != "people":
            specific = (PREFETCH_PROXY, EVERY_AGENT) if domain.priority == "prefetch" else (EVERY_AGENT,)
            if name := classes.most_specific(*specific):
                domains[domain.name] = name
    return classes


def static_states(tree: Configuration) -> tuple[AdviceState, ...]:
    """Return what a mode that does not compute publishes."""
    return () if tree.advice.computes else tuple(map(_static_state, _static_entries(tree)))


def _law_settings(section: AdviceSection) -> LawSettings:
    names = tuple(each.user_agent for each in section.entries if each.is_automatic)
    return LawSettings(names, float(section.freshness), section.floor, section.mode == "monitor")


def _static_entries(tree: Configuration) -> tuple[Entry, ...]:
    return tuple(each.entry() for each in tree.advice.entry)


def _static_state(entry: Entry) -> AdviceState:
    return AdviceState(user_agent=entry.user_agent, fraction=entry.wanted, published=entry.wanted)
