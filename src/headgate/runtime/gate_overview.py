"""What the dashboard of a gate shows: read in each process, and put together for all.

The `overview` has `domains` (rules, mode, algorithm and holds by name), `held` (domain, identifier, release time),
`refused` (the last requests refused or failed), `origins` (failed, failure and in_flight by name), `masters` (whether
they are connected, by address), `master`, `store` and `advice`, as in /api/state. An identifier is shown as
`log.identifiers` says, which `identifiers` repeats; null if it is hidden.
"""

import time
from collections.abc import Callable, Sequence
from heapq import nlargest
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from headgate.config import Configuration
from headgate.limit import Domain, Gatekeeper
from headgate.link import GatekeeperLink
from headgate.observe import AdviceState
from headgate.observe.feed import Minute, Sample, sum_verdicts
from headgate.origin.gateway import Gateway
from headgate.origin.gateway.meter import MAX_REFUSED, RequestMeter
from headgate.origin.gateway.record import RequestRecord
from headgate.runtime.gatekeeping import MAX_HELD, longest_holds

_MAX_TEXT: Final = 200
"""Characters of a text of a client that are shown."""


class GateParts(NamedTuple):
    """The parts of one process that are read."""

    gateway: Gateway
    meter: RequestMeter
    gatekeeper: Gatekeeper
    link: GatekeeperLink | None
    domains: Sequence[Domain]

    def sample(self, *, tables: bool) -> Sample:
        """Return what was counted. The tables have a row for each domain and each origin."""
        meter, link, pools = self.meter, self.link, self.gateway.origins.pools
        names = [domain.name for domain in self.domains]
        rows = {name: [*msgspec.structs.astuple(self.gatekeeper.totals[name]), meter.failed(name)] for name in names}
        permits = self.gateway.context.permits
        limit = permits.limit.state if permits is not None and permits.limit.settings.mode == "enforce" else None
        counts = sum_verdicts(rows.values())
        counts["limited"] = sum(sum(one.values()) for one in limit.rejected.values()) if limit is not None else 0
        counts["upstream_failures"] = sum(sum(pool.failures.values()) for pool in pools)
        counts["bus_dropped"] = sum(link.counters.dropped.values()) if link is not None else 0
        counts["controls"] = link.counters.controls if link is not None else 0
        gauges = {
            "connections": len(self.gateway.connections),
            "in_flight": sum(len(pool.open) - len(pool.idle) for pool in pools),
            "limit": limit.limit if limit is not None else 0,
            "queued": limit.queued if limit is not None else 0,
            "delayed_now": self.gatekeeper.delayed,
            "holds": sum(map(self.gatekeeper.hold_count, names)),
            "bus_lag": link.lag(time.time()) if link is not None else 0,
        }
        sample = Sample(counts | meter.totals(), gauges)
        if tables:
            sample.tables = {"domains": rows, "origins": {pool.name: meter.origin_totals(pool) for pool in pools}}
        return sample

    async def details(self, minute: Minute, shown: Callable[[bytes], str | None]) -> dict[str, Any]:
        """Return what this process adds to the overview."""
        held: list[tuple[float, str, str]] = []
        for domain in self.domains:
            if self.gatekeeper.hold_count(domain.name):
                longest = await longest_holds(self.gatekeeper, domain.name, lambda key: shown(key) or "")
                held = nlargest(MAX_HELD, [*held, *((one.release, domain.name, one.identifier) for one in longest)])
        pools = [pool for pool in self.gateway.origins.pools if pool.name in minute["origins"]["rows"]]
        return {
            "held": held,
            "holds": {name: self.gatekeeper.hold_count(name) for name in minute["domains"]["rows"]},
            "refused": [_refused_request(record, shown) for record in self.meter.refused],
            "origins": [(pool.name, pool.is_failed, pool.failure, len(pool.open) - len(pool.idle)) for pool in pools],
            "masters": {one.address: one.is_up for one in (self.link.connections if self.link is not None else ())},
        }


def gate_overview(
    tree: Configuration, minute: Minute, answers: Sequence[dict[str, Any]], advice: Sequence[AdviceState]
) -> dict[str, Any]:
    """Return the overview of a gate, from the details of its processes."""
    sections = {section.name: section for section in tree.domain}
    domains: dict[str, dict[str, Any]] = {}
    for name in minute.get("domains", {"rows": ()})["rows"]:
        section = sections.get(name)
        rules = {} if section is None else {key: getattr(section, key) for key in ("rules", "mode", "algorithm")}
        domains[name] = {"holds": max((one["holds"].get(name, 0) for one in answers), default=0), **rules}
    held: dict[tuple[str, str], float] = {}
    origins: dict[str, dict[str, Any]] = {}
    masters: dict[str, bool] = {}
    for answer in answers:
        for release, domain, identifier in answer["held"]:
            held[domain, identifier] = max(release, held.get((domain, identifier), 0.0))
        for name, failed, failure, in_flight in answer["origins"]:
            known = origins.get(name, {"failed": False, "failure": "", "in_flight": 0})
            origins[name] = {
                "failed": failed or known["failed"],
                "failure": failure or known["failure"],
                "in_flight": in_flight + known["in_flight"],
            }
        for address, up in answer["masters"].items():
            masters[address] = up and masters.get(address, True)
    return {
        "domains": domains,
        "held": [
            {"domain": domain, "identifier": identifier or None, "release": release}
            for (domain, identifier), release in nlargest(MAX_HELD, held.items(), key=lambda one: one[1])
        ],
        "identifiers": tree.log.identifiers,
        "refused": nlargest(
            MAX_REFUSED, chain.from_iterable(one["refused"] for one in answers), key=lambda one: one["time"]
        ),
        "origins": origins,
        "masters": {} if tree.gate.master == "embedded" else masters,
        "master": tree.gate.master_text,
        "advice": msgspec.to_builtins(advice),
    }


def _refused_request(record: RequestRecord, shown: Callable[[bytes], str | None]) -> dict[str, Any]:
    request, accounting = record.request, record.accounting
    method, path = (
        text[:_MAX_TEXT].decode("utf-8", "backslashreplace")
        for text in ((b"", b"") if request is None else (request.method, request.path))
    )
    return {
        "time": round(record.received, 3),
        "id": record.request_id.decode("latin-1"),
        "domain": record.domain,
        "identifier": shown(accounting.identifier) if accounting is not None else None,
        "reason": record.reason,
        "status": record.status,
        "method": method,
        "path": path,
    }
