"""The table `[advice]`: what the gate publishes as traffic advice, and how it is computed from the load.

A file may have a list `[[advice]]` instead, as `[[advice.entry]]` in a table without other keys.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from headgate.advice.identity import EVERY_AGENT, PREFETCH_PROXY
from headgate.advice_control import Entry, LawSettings
from headgate.advice_control.law import MIN_FLOOR
from headgate.config.section import ConfigSection, Format
from headgate.errors import ConfigurationError, RuleError, fail_any, fail_if
from headgate.limit import Rule

AUTO: Final = "auto"
LEARNED: Final = "learned"
_STATIC_MAX_AGE: Final = 1_800
_COMPUTED: Final = LawSettings()

Fraction = Annotated[float, Meta(ge=0, le=1)]
"""A part of the possible traffic."""


def parse_capacity(text: str) -> float | None:
    """Return the requests per second of a capacity such as ``500/s``; None for ``learned`` and for an empty text.

    Raises `ConfigurationError` for another text.
    """
    if text in {"", LEARNED}:
        return None
    try:
        rule = Rule.parse(text)
    except RuleError:
        rule = None
    if rule is None or "burst" in text.lower():
        raise ConfigurationError(f"invalid capacity {text!r}; expected a rate such as '500/s', or 'learned'")
    return 1_000 * rule.count / rule.period_ms


class AdviceEntrySection(ConfigSection, frozen=True):
    """The advice for one class of agents."""

    user_agent: str
    """The agents it is for: a brand name, prefetch-proxy, or * for every agent that respects traffic advice."""
    disallow: bool = False
    """Whether all traffic is discouraged at this time."""
    fraction: Fraction | Literal["auto"] = 1.0
    """The part of the possible traffic that is wanted, from 0 to 1; or auto, to compute it from the load."""
    domains: tuple[str, ...] = ()
    """Domains whose requests belong to this class, whatever their User-Agent."""

    @property
    def is_automatic(self) -> bool:
        """Whether its fraction is computed."""
        return self.fraction == AUTO

    def entry(self) -> Entry:
        """Return the static entry; without a limit where the fraction is computed."""
        return Entry(self.user_agent, self.disallow, 1.0 if self.fraction == AUTO else self.fraction)


_DEFAULT_ENTRIES: Final = tuple(
    AdviceEntrySection(user_agent=name, fraction=AUTO) for name in (PREFETCH_PROXY, EVERY_AGENT)
)
"""The entries of a mode that computes, if the file has none. The more specific one is first, since one deployed proxy
uses the first entry that names it."""


class AdviceSection(ConfigSection, frozen=True):
    """What the gate publishes at /.well-known/traffic-advice."""

    mode: Literal["static", "monitor", "adaptive"] = "static"
    """static publishes the entries as written; adaptive computes those with fraction auto from the load; monitor
    computes them, reports them in /api/state, and publishes the entries as written."""
    capacity: Annotated[str, Format("RATE|learned", parse_capacity)] = ""
    """Requests per second that the origin can serve, such as 500/s; or learned, from what it completes under load. To
    learn it needs `limit.concurrency.max` learned; without a limit, one is evaluated that refuses nothing."""
    floor: Annotated[float, Meta(ge=MIN_FLOOR, le=1)] = _COMPUTED.floor
    """Smallest computed fraction that is published; below it, the class is disallowed."""
    max_age: Annotated[int, Meta(ge=0, le=172_800), Format("SECONDS")] = 0
    """Whole seconds for which agents may use the advice; 0 for the default, 600, or 1800 in mode static. Agents that
    follow the document's suggestions use it for 600 seconds at least."""
    entry: tuple[AdviceEntrySection, ...] = ()
    """Entries; without entries, the origin answers that path, except in a mode that computes: then there are one for
    prefetch-proxy and one for *, both with fraction auto."""

    @property
    def computes(self) -> bool:
        """Whether fractions are computed from the load."""
        return self.mode != "static"

    @property
    def learns(self) -> bool:
        """Whether the capacity has to be learned."""
        return self.computes and self.capacity == LEARNED

    @property
    def entries(self) -> tuple[AdviceEntrySection, ...]:
        """The entries, or the default ones of a mode that computes."""
        return self.entry if self.entry or not self.computes else _DEFAULT_ENTRIES

    @property
    def freshness(self) -> int:
        """The seconds for which agents may use the advice."""
        return self.max_age or (int(_COMPUTED.max_age) if self.computes else _STATIC_MAX_AGE)

    @property
    def rate(self) -> float | None:
        """The capacity in requests per second; None if it is learned."""
        return parse_capacity(self.capacity)


def check_advice(section: AdviceSection, domains: tuple[str, ...]) -> None:
    """Raise `ConfigurationError` for keys that do not go together; `domains` are the names of all domains."""
    for index, entry in enumerate(section.entry):
        where = f"advice.entry[{index}]"
        fail_any(
            (
                not entry.user_agent.strip(),
                f"{where}.user_agent: empty; expected a brand name, 'prefetch-proxy', or '*' for all agents",
            ),
            (
                entry.user_agent in [before.user_agent for before in section.entry[:index]],
                f"{where}.user_agent: {entry.user_agent!r} appears twice; expected one entry for each name",
            ),
            (
                entry.is_automatic and not section.computes,
                f"{where}.fraction: 'auto' needs advice.mode 'adaptive' or 'monitor', got {section.mode!r}",
            ),
            (
                entry.is_automatic and entry.disallow,
                f"{where}: `disallow` excludes fraction 'auto'; expected only one of them",
            ),
        )
    _check_domains(section, domains)
    fail_any(
        (
            section.computes and not section.capacity,
            (
                f"advice: mode {section.mode!r} needs `capacity`, the requests per second that the origin can serve;"
                " expected a rate such as '500/s', or 'learned'"
            ),
        ),
        (
            section.computes and not any(entry.is_automatic for entry in section.entries),
            (
                f"advice: mode {section.mode!r} needs an entry with fraction 'auto'; add it to the entries whose "
                "fraction is to be computed, or leave out all entries for the default ones"
            ),
        ),
    )


def _check_domains(section: AdviceSection, domains: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for index, entry in enumerate(section.entry):
        for name in entry.domains:
            where = f"advice.entry[{index}].domains"
            if name not in domains:
                known = ", ".join(map(repr, domains)) or "none"
                raise ConfigurationError(f"{where}: unknown domain {name!r}; expected one of: {known}")
            fail_if(name in seen, f"{where}: {name!r} belongs to an entry already; expected each domain once")
            seen.add(name)
