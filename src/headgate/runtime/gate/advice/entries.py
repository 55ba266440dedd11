"""What the configuration says of traffic advice: the entries, the classes of requests, and the controller's settings.

Nothing here depends on the load.
"""

from collections.abc import Mapping
from typing import Final

from headgate.advice.controller import AgentClass, Settings
from headgate.advice.identity import EVERY_AGENT, PREFETCH_PROXY
from headgate.advice_control import Entry
from headgate.config.advice_section import AdviceSection
from headgate.observe import AdviceState
from headgate.origin.gateway.arrivals import MAX_AGENTS, ArrivalClasses

_REPORT_INTERVAL: Final = 1.0
_REPORTS_PER_PERIOD: Final = 10
_MIN_REPORT_INTERVAL: Final = 0.05
_PEOPLE: Final = "people"
_PREFETCH: Final = "prefetch"


def report_interval(section: AdviceSection) -> float:
    """Return the seconds between two reports of a worker."""
    return max(_MIN_REPORT_INTERVAL, min(_REPORT_INTERVAL, section.period / _REPORTS_PER_PERIOD))


def arrival_classes(section: AdviceSection, priorities: Mapping[str, str]) -> ArrivalClasses:
    """Return the classes of requests; `priorities` has the priority of each domain, in the order of the file."""
    listed = {name: entry.user_agent for entry in section.entries for name in entry.domains}
    names = tuple(entry.user_agent for entry in section.entries)
    classes = ArrivalClasses(names, listed)
    for domain, priority in priorities.items():
        if domain not in listed and priority != _PEOPLE:
            specific = (PREFETCH_PROXY, EVERY_AGENT) if priority == _PREFETCH else (EVERY_AGENT,)
            if name := classes.most_specific(*specific):
                listed[domain] = name
    return classes


def controller_settings(section: AdviceSection) -> Settings:
    """Return the settings of the controller; the capacity is given with each decision."""
    return Settings(
        capacity=0.0,
        classes=tuple(AgentClass(entry.user_agent, entry.weight) for entry in section.entries if entry.is_automatic),
        target=section.target,
        period=section.period,
        max_age=section.freshness,
        floor=section.floor,
        max_agents=MAX_AGENTS,
    )


def static_entries(section: AdviceSection) -> tuple[Entry, ...]:
    """Return the entries as they are written."""
    return tuple(each.entry() for each in section.entry)


def static_state(entry: Entry) -> AdviceState:
    """Return the state of a class whose entry is published as written."""
    return AdviceState(user_agent=entry.user_agent, fraction=entry.wanted, published=entry.wanted, reason="static")
