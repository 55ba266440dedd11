"""The loop from load to traffic advice: one controller for all workers of a gate, and the document it publishes.

It is driven from outside: `take` adds what a worker has counted, `tick` decides, and `publication` is what the workers
serve. This file opens no socket and reads no clock.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from headgate.advice.controller import Controller, Explanation
from headgate.advice.fetch_log import FORGOTTEN_AFTER
from headgate.advice.identity import EVERY_AGENT, PREFETCH_PROXY
from headgate.advice.lint import DEPLOYED
from headgate.advice_control import Entry, document
from headgate.config.advice_section import AdviceSection
from headgate.observe import AdviceState
from headgate.origin.gateway.arrivals import MAX_AGENTS, KnownAgent, KnownAgents, brand_of
from headgate.runtime.gate.advice.change_log import ChangeLog
from headgate.runtime.gate.advice.entries import (
    arrival_classes,
    controller_settings,
    static_state,
)
from headgate.runtime.gate.advice.messages import AdvicePublication, AdviceReport
from headgate.runtime.gate.advice.state_file import SavedAdvice, SavedAgent

_MAX_DOCUMENTS: Final = 16
"""Documents whose fractions are kept: a worker may report fetches of a document that was replaced meanwhile."""
_DOWN: Final = 0.2
"""The part of a period's requests that did not reach the origin, from which on it counts as down."""
_DIGITS: Final = 6
_RATE_DIGITS: Final = 3


class AdviceLoop:
    """Computes the fractions of the entries that ask for it, and publishes a document when one changes.

    `saved` is what an earlier loop has saved. `log` is called with a line for each change, at most one of a kind in ten
    seconds. Memory is bounded, however many agents fetch and whatever they call themselves.
    """

    def __init__(
        self,
        section: AdviceSection,
        *,
        workers: int = 1,
        saved: SavedAdvice | None = None,
        now: float,
        log: Callable[[str], None],
    ) -> None:
        self._workers = workers
        self._section = section
        self._log = ChangeLog(log)
        self._classes = arrival_classes(section, {})
        self._agents = KnownAgents(FORGOTTEN_AFTER * section.freshness)
        self._fetching: list[KnownAgent] = []
        """Those that have fetched since the last publication."""
        self._fetched: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        """When each agent fetched last, and which document."""
        self._proxies: set[bytes] = set()
        """Agents that send requests of prefetch proxies."""
        self._admitted = self._failed = 0
        self._capacities: dict[int, float] = {}
        self._requests: dict[int, float] = {}
        """Requests of each worker; those of each period count half of those of the next one."""
        self._saved_capacity = saved.capacity if saved is not None else 0.0
        self._documents: OrderedDict[int, dict[str, float]] = OrderedDict()
        self._serial = 0
        self._restart(self._restored(saved, now) if saved is not None else (), now)
        self._entries = self._published()
        self._number()

    def _restored(self, saved: SavedAdvice, now: float) -> tuple[Entry, ...]:
        """Return the entries that agents obey; none of a file that is so old that they obey nothing.

        A file of the future is one of before the clock was set back.
        """
        if now - saved.saved > FORGOTTEN_AFTER * self._section.freshness:
            return ()
        for agent in saved.agents:
            self._agents.add(
                KnownAgent(agent.address.encode("latin-1", "replace"), agent.brand.encode("latin-1", "replace")),
                now=now,
            )
        return tuple(Entry.of(name, fraction) for name, fraction in saved.fractions.items() if name.strip())

    def _restart(self, start: Iterable[Entry], now: float) -> None:
        """Make a controller for agents that obey the entries of `start`."""
        self._settings = controller_settings(self._section)
        self._controller = Controller(self._settings, start=start)
        self._controller.update(now=now)

    @property
    def decided_at(self) -> float | None:
        """When the last period ended."""
        return self._controller.updated_at

    def reload(self, section: AdviceSection, *, now: float) -> None:
        """Apply another configuration; `publication` has the document that follows from it."""
        before, self._section = self._section, section
        self._classes = arrival_classes(section, {})
        self._agents.seconds = FORGOTTEN_AFTER * section.freshness
        is_other = (section.mode, section.override) != (before.mode, before.override)
        if is_other or controller_settings(section) != self._settings:
            self._restart(self._entries, now)
        self._publish()

    def saved(self, *, now: float) -> SavedAdvice:
        """Return what a later loop needs."""
        computed = {entry.user_agent for entry in self._section.entries if entry.is_automatic}
        return SavedAdvice(
            saved=now,
            fractions={entry.user_agent: entry.wanted for entry in self._entries if entry.user_agent in computed},
            capacity=self._learned_capacity(),
            agents=tuple(
                SavedAgent(agent.address.decode("latin-1"), agent.brand.decode("latin-1"))
                for agent in self._agents.all()
            ),
        )

    @property
    def publication(self) -> AdvicePublication:
        """What a worker that starts has to know: the document, and all agents."""
        return AdvicePublication(document(self._entries), self._serial, self._agents.all())

    def take(self, report: AdviceReport, *, worker: int = 0, now: float) -> None:
        """Add what a worker has counted."""
        for address, user_agent, serial in report.fetches:
            self._fetch(KnownAgent(address, brand_of(user_agent)), serial, now)
        self._admitted += report.people - report.origin.rejected
        for name, agent, count in report.arrivals:
            self._recognise_proxy(name, agent, now)
            self._controller.arrived(name, agent, count=count)
            self._admitted += count
        self._controller.arrived(None, count=report.people)
        requests = report.people + sum(count for _, _, count in report.arrivals)
        self._requests[worker] = self._requests.get(worker, 0.0) + requests
        self._failed += report.origin.failed
        if report.origin.capacity > 0.0:
            self._capacities[worker] = report.origin.capacity

    def tick(self, *, now: float) -> AdvicePublication | None:
        """Decide, if a period has ended; return what is new for the workers, None if nothing is."""
        before = self._serial
        if self._controller.is_due(now=now):
            self._decide(now)
        if self._serial == before and not self._fetching:
            return None
        agents, self._fetching = self._fetching, []
        return AdvicePublication(document(self._entries), self._serial, agents)

    def state(self) -> tuple[AdviceState, ...]:
        """Return what is published for each class, and why."""
        explained = {explanation.agent_class: explanation for explanation in self._controller.explain()}
        return tuple(
            static_state(entry) if name not in explained else self._state_of(entry, explained[name])
            for entry in self._entries
            for name in (entry.user_agent,)
        )

    def _state_of(self, entry: Entry, explained: Explanation) -> AdviceState:
        return AdviceState(
            user_agent=entry.user_agent,
            fraction=round(explained.fraction, _DIGITS),
            published=entry.wanted,
            demand=round(explained.demand, _RATE_DIGITS),
            arrivals=round(explained.arrivals, _RATE_DIGITS),
            in_force=round(explained.in_force, _DIGITS),
            agents=explained.agents,
            compliance=explained.compliance,
            reason=self._reason(explained.reason),
        )

    def _reason(self, reason: str) -> str:
        section = self._section
        if section.mode == "adaptive" and section.override != "off":
            return "override"
        return "capacity unknown" if self.capacity <= 0.0 and section.rate is None else reason

    @property
    def capacity(self) -> float:
        """The capacity in requests per second; 0 as long as it is not learned."""
        rate = self._section.rate
        return self._learned_capacity() if rate is None else rate

    def _learned_capacity(self) -> float:
        """Return the sum over the workers; those that have learned nothing yet have their part of the requests.

        All kept connections may be at one worker, and the others then add nothing to the capacity.
        """
        if not self._capacities:
            return self._saved_capacity
        part, total = len(self._capacities) / self._workers, sum(self._requests.values())
        if total:
            part = max(part, sum(self._requests.get(worker, 0.0) for worker in self._capacities) / total)
        return sum(self._capacities.values()) / part

    def _decide(self, now: float) -> None:
        """End a period. One in which the origin was down shows no demand: agents back off."""
        down = self._failed > 0 and self._failed >= _DOWN * self._admitted
        self._admitted = self._failed = 0
        self._requests = {worker: requests / 2.0 for worker, requests in self._requests.items()}
        is_known = self.capacity > 0.0 or self._section.rate is not None
        published = self._documents[self._serial]
        self._controller.update(now=now, capacity=self.capacity, frozen=down or not is_known, published=published)
        self._publish()
        self._log.decided(self.state(), down=down, now=now)
        self._agents.forget(now=now)
        self._proxies.intersection_update(agent.key for agent in self._agents.all())

    def _publish(self) -> None:
        """Replace the document, if it changes."""
        entries = self._published()
        if entries != self._entries:
            self._entries = entries
            self._number()

    def _published(self) -> tuple[Entry, ...]:
        """Return the entries of the document."""
        section = self._section
        computed = {entry.user_agent: entry for entry in self._controller.entries}
        published = []
        for each in section.entries:
            entry = each.entry()
            if each.is_automatic and section.mode == "adaptive":
                if section.override != "off":
                    entry = Entry.of(each.user_agent, section.override)
                else:
                    entry = Entry.of(each.user_agent, min(computed[each.user_agent].wanted, section.ceiling))
            published.append(entry)
        return tuple(published)

    def _number(self) -> None:
        """Give the document its number, and remember its fractions."""
        self._serial += 1
        self._documents[self._serial] = {entry.user_agent: entry.wanted for entry in self._entries}
        if len(self._documents) > _MAX_DOCUMENTS:
            self._documents.popitem(last=False)

    def _fetch(self, agent: KnownAgent, serial: int, now: float) -> None:
        """Record the fetch of an agent in the log of its class."""
        self._agents.add(agent, now=now)
        self._fetching.append(agent)
        self._fetched[agent.key] = now, serial
        self._fetched.move_to_end(agent.key)
        if len(self._fetched) > MAX_AGENTS:
            self._fetched.popitem(last=False)
        is_proxy = agent.key in self._proxies or agent.brand == DEPLOYED.brand.encode()
        specific = (PREFETCH_PROXY, EVERY_AGENT) if is_proxy else (EVERY_AGENT, PREFETCH_PROXY)
        name = self._classes.most_specific(agent.brand.decode("utf-8", "replace"), *specific)
        self._record(name, agent.key, serial, now, self._section.freshness)

    def _recognise_proxy(self, name: str, agent: bytes, now: float) -> None:
        """Record the last fetch of an agent as one of a prefetch proxy when its first prefetch request arrives.

        A fetch does not say that its agent is a prefetch proxy.
        """
        if name != PREFETCH_PROXY or agent in self._proxies or agent not in self._fetched:
            return
        self._proxies.add(agent)
        fetched, serial = self._fetched[agent]
        self._record(name, agent, serial, now, fetched + self._section.freshness - now)

    def _record(self, name: str, agent: bytes, serial: int, now: float, max_age: float) -> None:
        """Record that an agent obeys its entry of a document for `max_age` seconds more."""
        latest = self._documents[self._serial]
        served = self._documents.get(serial, latest).get(name)
        if served is not None and max_age > 0.0 and self._is_computed(name):
            self._controller.fetched(name, agent, now=now, max_age=max_age, served=served)

    def _is_computed(self, name: str) -> bool:
        return any(each.name == name for each in self._settings.classes)
