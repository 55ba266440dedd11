"""A master for gatekeepers in other processes or on other machines."""

import asyncio
import select
import sys
import time
from collections.abc import Iterator
from heapq import nlargest
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace
from prometheus_client.core import Metric

from headgate.config import Address, Configuration, domain_changes, log_warnings
from headgate.config.tree import Bus, restart_note, with_mode
from headgate.limit import DelayUntil, Master
from headgate.link import MasterLink
from headgate.link.connections import Warnings
from headgate.link.curve import ServerKeys, read_server_keys
from headgate.link.master import MasterCounters
from headgate.observe import (
    Counters,
    HeldIdentifier,
    MasterDomainState,
    MasterState,
    MasterTotals,
    master_metrics,
    read_counters,
)
from headgate.observe.feed import Minute, Sample, sum_verdicts
from headgate.observe.state import QuotaState, identifier_digest
from headgate.runtime.admin import admin_url, start_admin
from headgate.runtime.bus_protection import bus_address, bus_warnings, require_quota_protection
from headgate.runtime.control import master_control
from headgate.runtime.gatekeeping import describe_domain
from headgate.runtime.lifecycle import ReadConfiguration, Server
from headgate.runtime.log import LogCounters, configure_log, log, log_counters, write_line
from headgate.runtime.master_store import MasterStore
from headgate.runtime.snapshot import SnapshotCounters, Snapshots

if TYPE_CHECKING:
    from headgate.rlqs.server import QuotaServer

_MAX_HELD: Final = 10
_REPORT_INTERVAL: Final = 1.0
MASTER_GROUPS: Final = (
    ("master", MasterTotals),
    ("bus", MasterCounters),
    ("snapshot", SnapshotCounters),
    ("log", LogCounters),
)
"""The groups of counters of a master without a store."""
_CHECK_INTERVAL: Final = 1.0

_RELOADED_KEYS: Final = frozenset({"curve_allow", "max_hold", "max_identifiers"})
_RESTART_KEYS: Final = (
    "admin",
    *(f"master.{name}" for name in Bus.__struct_fields__ if name not in _RELOADED_KEYS),
)
"""Keys that only a restart can change."""


class MasterServer(Server):
    """A master in its life-cycle. It has nothing to drain: gatekeepers reconnect by themselves.

    With `as_json`, it prints a line of counts each second.
    """

    kind = "master"

    def __init__(self, read: ReadConfiguration, *, as_json: bool) -> None:
        super().__init__()
        self._read = read
        self._as_json = as_json
        self._tree, _ = read()
        self._in_force = self._tree
        self._by_hand: dict[tuple[str, bytes], float] = {}
        self._quotas: QuotaServer | None = None
        self._store = MasterStore(self._tree.master.store, log)

    async def start(self) -> None:
        configure_log(self._tree.log)
        settings, loop = self._tree.master, asyncio.get_running_loop()
        snapshots = self._snapshots = Snapshots(settings.snapshot, settings.snapshot_interval, log)
        master = await snapshots.restore(lambda: self._new_master(self._tree))
        self.closing.push_async_callback(snapshots.close)
        link = self._link = MasterLink(
            master,
            bus_address(settings),
            keys=_read_keys(self._tree),
            insecure=settings.insecure,
            log=log,
        )
        self.closing.callback(link.close)
        self.closing.callback(link.receive_rest)
        self._store.attach(link.master, link.publish)
        self._store.start()
        self.closing.push_async_callback(self._store.close)
        await start_admin(self, settings.admin, self._tree.admin)
        link.start(loop)
        if settings.rlqs:
            self._quotas = _open_quotas(link, settings)
            self.closing.push_async_callback(self._quotas.close)
            await self._quotas.start()
        snapshots.start(lambda: link.master)
        self.start_task(self._report_unknown_domains())
        if self._as_json:
            self.start_task(self._report())

    def announce(self) -> None:
        log_warnings(self._tree, log, shared=True)
        for warning in bus_warnings(self._tree.master):
            log(warning)
        accounting, control = self._link.endpoints
        rlqs = f" rlqs {self._quotas.address}" if self._quotas is not None else ""
        log(f"domains {len(self._link.master.domains)} control {control} admin {admin_url(self)}{rlqs}")
        # Scripts read the address from this line, so it contains nothing else.
        write_line(f"ready {accounting}")

    async def reload(self) -> None:
        tree, file = self._read()
        configure_log(tree.log)
        settings, old = tree.master, self._tree.master
        if file is None and not settings.curve_allow:
            log("nothing to reload: started without a configuration file")
            return
        keys, changes = _read_keys(tree), domain_changes(self._tree.domain, tree.domain)
        self._put_in_force(tree)
        if keys is not None and old.curve_key:
            self._link.set_allowed_keys(keys.allowed)
        log_warnings(tree, log, shared=True)
        rest = restart_note(self._tree, tree, _RESTART_KEYS)
        log(f"{file or settings.curve_allow} read again{changes}{rest}")

    def _put_in_force(self, tree: Configuration) -> None:
        master = self._new_master(tree)
        master.adopt(self._link.master, now=time.time())
        self._link.set_master(master)
        if self._quotas is not None:
            self._quotas.service.master = master
        self._store.attach(master, self._link.publish)
        self._in_force, self._tree = tree, replace(self._tree, domain=tree.domain)

    async def set_mode(self, domain: str, mode: str) -> None:
        """Change the mode of a domain until the next reload; gatekeepers keep the holds that they have."""
        self._put_in_force(with_mode(self._in_force, domain, mode))

    async def ask(self, name: str, argument: Any) -> list[Any]:
        """Return the answer of the master to a query of `headgate ctl`."""
        return [getattr(master_control(self._link, self._in_force.gate.ipv6_prefix, self._by_hand), name)(**argument)]

    def scope(self, act: str) -> str:
        """Return where else a client must be released."""
        return (
            "" if act == "hold" else "; gates and sidecars keep the holds that they have: release the client there, too"
        )

    async def _report(self) -> None:
        """Write a line of counts every second. A reader that does not read misses lines; one that is gone ends all."""
        try:
            while True:
                await asyncio.sleep(_REPORT_INTERVAL)
                if select.select([], [sys.stdout], [], 0)[1]:
                    counts = read_counts(self._link, time.time()) | {"store": self._store.state} | self._counters()
                    sys.stdout.write(msgspec.json.encode(counts).decode() + "\n")
                    sys.stdout.flush()
        except Exception as error:
            self.fail(error)

    async def _report_unknown_domains(self) -> None:
        """Log the unknown domains that gatekeepers use, each once an hour."""
        warnings = Warnings(log)
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            master = self._link.master
            names, master.unknown_names = master.unknown_names, {}
            for name, times in sorted(names.items()):
                # As repr, because the name is untrusted: control characters must not reach a terminal.
                warnings.add(
                    f"domain {name}",
                    f"warning: gatekeepers use the domain {name!r}, which is not configured; its requests are not "
                    "limited",
                    times,
                )

    async def state(self, *, whole: bool) -> MasterState:
        """Return the state of the master; its holds only if `whole`: that looks at every history, with pauses."""
        link, master, quotas = self._link, self._link.master, self._quotas
        domains = [
            describe_domain(MasterDomainState, domain, master.totals[name], identifiers=master.identifiers(name))
            for name, domain in master.domains.items()
        ]
        own = read_counters(("bus", link.counters), ("master", MasterTotals.of(master)), ("log", log_counters()))
        return MasterState(
            domains=tuple([await _with_holds(master, domain) for domain in domains] if whole else domains),
            gatekeepers=link.gatekeepers,
            started=self.started,
            identifiers=len(master),
            store=self._store.state,
            snapshot_saved=round(self._snapshots.saved_at, 3),
            quotas=None if quotas is None else _quota_state(quotas),
            counters=own | self._counters(),
        )

    async def samples(self, *, tables: bool) -> list[Sample]:
        """Return what the master has counted, for the dashboard."""
        link, master = self._link, self._link.master
        rows = {name: list(msgspec.structs.astuple(totals)) for name, totals in master.totals.items()}
        counts = {"controls": link.counters.controls, "dropped": sum(link.counters.dropped.values())}
        counts |= {"unknown": master.unknown, "wrong_clock": master.ahead + master.late, **sum_verdicts(rows.values())}
        gauges = {"identifiers": len(master), "gates": sum(link.gatekeepers.values())}
        return [Sample(counts, gauges, {"domains": rows} if tables else {})]

    async def overview(self, minute: Minute) -> dict[str, Any]:
        """Return what the dashboard shows besides the rows of `minute`."""
        master, quotas = self._link.master, self._quotas
        domains = {
            name: {"rules": list(map(str, domain.rules)), "mode": domain.mode, "identifiers": master.identifiers(name)}
            for name in minute["domains"]["rows"]
            if (domain := master.domains.get(name)) is not None
        }
        shown = {"domains": domains, "gates": self._link.gatekeepers, "store": self._store.state}
        saved = {"snapshot_saved": self._snapshots.saved_at, "store_counters": self._store.counters()}
        return shown | saved | {"quotas": None if quotas is None else msgspec.to_builtins(_quota_state(quotas))}

    def metrics(self, state: MasterState) -> Iterator[Metric]:
        """Make the metrics of a master."""
        quotas = [] if self._quotas is None else [("quota", type(self._quotas.service.counters))]
        return master_metrics(state, [*MASTER_GROUPS, *self._store.groups(), *quotas])

    def _counters(self) -> Counters:
        """Return the counters of the store, the snapshots and the quota service."""
        quotas = [] if self._quotas is None else [("quota", self._quotas.service.counters)]
        return self._store.counters() | read_counters(("snapshot", self._snapshots.counters), *quotas)

    def _new_master(self, tree: Configuration) -> Master:
        settings = tree.master
        domains = [section.domain() for section in tree.domain]
        return self._store.new_master(domains, max_identifiers=settings.max_identifiers, max_delay=settings.max_hold)


def _read_keys(tree: Configuration) -> ServerKeys | None:
    return read_server_keys(tree.master.curve_key, tree.master.curve_allow, "master")


def _open_quotas(link: MasterLink, settings: Bus) -> "QuotaServer":
    """Return the quota service: it shares the link, so that Envoys and gatekeepers on the bus have one history.

    Raises `ConfigurationError` if it would be open to others or its certificate is not usable, and `MissingExtra`.
    """
    # Here, because grpc takes a quarter of a second to import, and may be missing.
    from headgate.rlqs.server import QuotaServer
    from headgate.rlqs.service import QuotaService

    require_quota_protection(settings)
    files = [settings.rlqs_key, settings.rlqs_cert] if settings.rlqs_cert else []
    tls = [Path(file).read_bytes() for file in files]
    server = QuotaServer(QuotaService(link.master, link.publish), Address.parse(settings.rlqs), log=log, tls=tls)
    link.follow(server.on_control)
    return server


def _quota_state(quotas: "QuotaServer") -> QuotaState:
    return QuotaState(str(quotas.address), len(quotas.service.table.streams), len(quotas.service.table))


async def _with_holds(master: Master, domain: MasterDomainState) -> MasterDomainState:
    """Add the number of holds in force, and the longest of them."""
    now, count = time.time(), 0
    longest: list[DelayUntil] = []
    for holds, _ in master.hold_batches(domain.name, now=now, limit=sys.maxsize):
        count += len(holds)
        longest = nlargest(_MAX_HELD, longest + holds, key=attrgetter("release"))
        await asyncio.sleep(0)
    # A master does not know what identifies a client: an identifier that is not an address may be a secret.
    held = (HeldIdentifier.of(identifier_digest(one.identifier), one.release, now) for one in longest)
    return replace(domain, holds=count, held=tuple(held))


def read_counts(link: MasterLink, now: float) -> dict[str, object]:
    """Return what a line of `--json` shows of a master and its link: totals since the start, also by domain."""
    master, totals = link.master, link.master.totals
    verdicts = ("accepted", "delayed", "rejected")
    return {
        "time": round(now, 3),
        **{verdict: sum(getattr(one, verdict) for one in totals.values()) for verdict in verdicts},
        **{name: getattr(master, name) for name in ("unknown", "ahead", "late", "shortened")},
        "clock_steps": master.clock.steps,
        "identifiers": len(master),
        "domains": {name: msgspec.structs.asdict(one) for name, one in totals.items()},
        **msgspec.structs.asdict(link.counters),
    }
