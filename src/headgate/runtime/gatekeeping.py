"""What the processes of a gate and of a sidecar share: the state of a gatekeeper, and its periodic work."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import asdict

from headgate.config import Configuration, DomainSection
from headgate.limit import Domain, Gatekeeper
from headgate.limit.messages import Totals
from headgate.link import GatekeeperLink
from headgate.link.gatekeeper import GatekeeperCounters
from headgate.observe import Counters, DomainState, GatekeeperTotals, HeldIdentifier, read_counters
from headgate.origin import Rejections
from headgate.runtime.log import LogCounters, log, log_counters

if TYPE_CHECKING:
    from headgate.origin.agents import AgentVerifier

GATEKEEPER_GROUPS: Final = (("gatekeeper", GatekeeperTotals), ("link", GatekeeperCounters), ("log", LogCounters))
"""The groups of `gatekeeper_counters`."""

_State = TypeVar("_State", bound=DomainState)
_FORGET_INTERVAL: Final = 0.1
_MAX_FORGOTTEN: Final = 1_000
"""Holds, and histories, examined in one step; it takes a millisecond or two."""
_REPORT_INTERVAL: Final = 1.0
MAX_HELD: Final = 10
"""Identifiers shown of those that are held longest."""
_SUBSCRIBE_TIMEOUT: Final = 0.25
_SUBSCRIBE_CHECKS: Final = 50


def build_agents(tree: Configuration) -> "AgentVerifier | None":
    """Return what verifies agents; None without `web_bot_auth.authorities`. Raises `ConfigurationError`."""
    section = tree.web_bot_auth
    if not section.authorities:
        return None
    from headgate.origin.agents import AgentVerifier, directory_fetcher

    fetch_keys = directory_fetcher(section.allow_addresses, section.ca)
    return AgentVerifier(section.authorities, fetch_keys=fetch_keys, single_use=section.single_use, log=log)


def new_rejections(
    sections: Sequence[DomainSection], domains: Iterable[Domain], *, status: int, page: str = ""
) -> Rejections:
    """Return what writes rejections in `domains`, as the sections of the file say. Raises `ConfigurationError`."""
    return Rejections(
        domains,
        status=status,
        path_prefixes={
            section.name: section.path_prefix
            for section in sections
            if section.path_prefix and isinstance(section.path_prefix, str)  # a list is not one subtree
        },
        page=page,
    )


async def wait_for_masters(link: GatekeeperLink, *, holds: bool = False) -> None:
    """Wait for the connections to all masters, so that the first request is accounted; at most for a short time.

    With `holds`, also for the first ones: a master knows identifiers.
    """
    for _ in range(_SUBSCRIBE_CHECKS):
        if link.has_all_masters and link.has_master and (link.counters.controls or not holds):
            return
        await asyncio.sleep(_SUBSCRIBE_TIMEOUT / _SUBSCRIBE_CHECKS)


async def forget_expired(current: Callable[[], Gatekeeper]) -> None:
    """Drop the holds and histories of the gatekeeper in force that have expired, in small steps; until cancelled."""
    while True:
        await asyncio.sleep(_FORGET_INTERVAL)
        now, gatekeeper = time.time(), current()
        gatekeeper.forget(now=now, most=_MAX_FORGOTTEN)
        if gatekeeper.master is not None:
            gatekeeper.master.forget(now=now, most=_MAX_FORGOTTEN)


async def report_short_holds(key: str, limit: Callable[[], float | None], log: Callable[[str], None]) -> None:
    """Log once that holds of a master elsewhere were shortened to `limit` seconds, the value of `key`.

    `limit` returns None as long as no hold was shortened to that value.
    """
    while True:
        seconds = limit()
        if seconds is not None:
            break
        await asyncio.sleep(_REPORT_INTERVAL)
    log(
        f"warning: a master holds a client for longer than {key}, {seconds:g} s, so its hold was shortened; if "
        f"burst/rate of a rule of the masters is longer, increase {key}"
    )


async def longest_holds(
    gatekeeper: Gatekeeper, domain: str, shown: Callable[[bytes], str]
) -> tuple[HeldIdentifier, ...]:
    """Return the identifiers that are held longest in a domain; pauses for requests, since it looks at every hold."""
    now = time.time()
    longest: list[tuple[bytes, float]] = []
    for so_far in gatekeeper.top_in_steps(domain, now=now, most=MAX_HELD):
        longest = so_far
        await asyncio.sleep(0)
    return tuple(HeldIdentifier.of(shown(name), release, now) for name, release in longest)


def domain_state(gatekeeper: Gatekeeper, domain: Domain, held: tuple[HeldIdentifier, ...]) -> DomainState:
    """Return the state of a domain, with the identifiers that are `held` longest."""
    holds = gatekeeper.hold_count(domain.name)
    return describe_domain(DomainState, domain, gatekeeper.totals.get(domain.name), held=held, holds=holds)


def describe_domain(kind: type[_State], domain: Domain, totals: Totals | None, **more: Any) -> _State:
    """Return the state of a domain with its totals, if it has any so far, and `more`."""
    rules, counts = tuple(map(str, domain.rules)), asdict(totals or Totals())
    return kind(name=domain.name, rules=rules, algorithm=domain.algorithm, mode=domain.mode, **counts, **more)


def gatekeeper_counters(gatekeeper: Gatekeeper, link: GatekeeperLink | None) -> Counters:
    """Return the counters of a gatekeeper, its link, and the log of its process."""
    counters = read_counters(("gatekeeper", GatekeeperTotals.of(gatekeeper)), ("log", log_counters()))
    return counters if link is None else counters | read_counters(("link", link.counters))
