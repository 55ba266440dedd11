"""The state of a running master, as a value for its admin listener."""

import asyncio
import sys
import time
from heapq import nlargest
from typing import Final

import msgspec

from headgate.limit import DelayUntil, Domain, Master
from headgate.link import MasterLink
from headgate.observe import HeldIdentifier, MasterDomainState, MasterState, MasterTotals, read_counters
from headgate.observe.state import identifier_digest
from headgate.runtime.log import log_counters

_MAX_HELD: Final = 10


async def read_state(link: MasterLink, *, started: float, whole: bool) -> MasterState:
    """Return the state of the master of `link`; its holds only if `whole`: that looks at every history, with pauses."""
    master = link.master
    domains = [_domain_state(master, domain) for domain in master.domains.values()]
    if whole:
        now = time.time()
        domains = [await _with_holds(master, domain, now) for domain in domains]
    return MasterState(
        domains=tuple(domains),
        started=round(started, 3),
        identifiers=len(master),
        gatekeepers=link.gatekeepers,
        counters=read_counters(("bus", link.counters), ("master", MasterTotals.of(master)), ("log", log_counters())),
    )


def _domain_state(master: Master, domain: Domain) -> MasterDomainState:
    totals = master.totals[domain.name]
    return MasterDomainState(
        name=domain.name,
        rules=tuple(map(str, domain.rules)),
        algorithm=domain.algorithm,
        mode=domain.mode,
        accepted=totals.accepted,
        delayed=totals.delayed,
        rejected=totals.rejected,
        identifiers=master.identifiers(domain.name),
    )


async def _with_holds(master: Master, domain: MasterDomainState, now: float) -> MasterDomainState:
    """Add the number of holds in force, and the longest of them."""
    count = 0
    longest: list[DelayUntil] = []
    for holds, _ in master.hold_batches(domain.name, now=now, limit=sys.maxsize):
        count += len(holds)
        longest = nlargest(_MAX_HELD, longest + holds, key=_release)
        await asyncio.sleep(0)
    held = tuple(
        # A master does not know what identifies a client: an identifier that is not an address may be a secret.
        HeldIdentifier(identifier_digest(one.identifier), round(one.release, 3), round(one.release - now, 3))
        for one in longest
    )
    return msgspec.structs.replace(domain, holds=count, held=held)


def _release(hold: DelayUntil) -> float:
    return hold.release
