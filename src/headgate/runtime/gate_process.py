"""One gate in one process: gateway, gatekeeper and link built together, watched, reloaded and drained.

It is a gate of its own, or one worker of several: `python -m headgate.runtime.gate_process` runs a worker.
"""

import asyncio
import gc
import os
import socket
import sys
import time
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.config import Configuration
from headgate.config.tree import Gate
from headgate.errors import ConfigurationError
from headgate.limit import Gatekeeper
from headgate.limit.concurrency import ConcurrencyState
from headgate.link import GatekeeperLink
from headgate.observe import (
    AdviceState,
    Counters,
    GateState,
    HeldIdentifier,
    LinkedMasterState,
    MasterTotals,
    read_counters,
)
from headgate.observe.state import OriginState, identifier_digest, identifier_text
from headgate.origin.gateway import Gateway, GatewayPolicy
from headgate.origin.gateway.meter import RequestMeter
from headgate.origin.gateway.origins import client_tls
from headgate.origin.gateway.record import Observe
from headgate.origin.permits import WATCH_INTERVAL, ConcurrencyWatch
from headgate.runtime.access_log import AccessLog, AccessLogCounters, identifier_namer
from headgate.runtime.control import ProcessControl
from headgate.runtime.gate_advice import (
    AdvicePublication,
    AdviceReport,
    GateAdvice,
    make_loop,
    report_interval,
    static_states,
)
from headgate.runtime.gate_build import (
    Composition,
    build_gatekeeper,
    build_policy,
    compose,
    concurrency_settings,
    domains_with_kept_holds,
    fit_bounds,
    listener_settings,
    load_bundles,
    load_tls,
    max_hold,
    open_memory,
    read_keys,
    require_gate,
)
from headgate.runtime.gate_overview import GateParts
from headgate.runtime.gatekeeping import (
    domain_state,
    forget_expired,
    gatekeeper_counters,
    longest_holds,
    report_short_holds,
    wait_for_masters,
)
from headgate.runtime.ipc import Configure, Query, Shutdown
from headgate.runtime.lifecycle import Backend, cancel_tasks
from headgate.runtime.listen import Endpoint, listen_error
from headgate.runtime.log import configure_log, log
from headgate.runtime.master_reports import MasterReports
from headgate.runtime.master_store import MasterStore
from headgate.runtime.snapshot import Snapshots
from headgate.runtime.worker_main import Send, run_worker

_BUNDLE_CHECK_INTERVAL: Final = 1.0
_FILE_CHECK_INTERVAL: Final = 2.0
_LOG_TIMEOUT: Final = 1.0
"""Seconds to wait for the last lines of the access log at the end."""


class GateConfiguration(msgspec.Struct, frozen=True):
    """The configuration of one process of a gate."""

    tree: Configuration
    endpoints: tuple[Endpoint, ...]
    """Where to listen; shared with other processes."""
    bus: str = ""
    """The address of the supervisor's master; empty if `tree` names the master."""
    memory: str = ""
    """The file in which the workers count together; empty if there is one process."""
    snapshot: str = ""
    """The file for the histories of the master of this process, or of the supervisor; empty for none."""
    holds: bool = False
    """Whether the master of the supervisor knows identifiers, and may hold them."""
    number: int = 0
    """Which of several workers it is for; the first one logs what becomes of masters elsewhere."""
    log_key: bytes = msgspec.field(default_factory=lambda: os.urandom(32))
    """The key of hashed identifiers in the access log."""
    advice: AdvicePublication | None = None
    """What the supervisor publishes as traffic advice, if it computes that."""


class GateProcess(Backend):
    """A gateway with its gatekeeper, link and bundles.

    `send` sends a message to the supervisor of a worker. Raises `ConfigurationError` for a configuration that cannot be
    served.
    """

    def __init__(self, configuration: GateConfiguration, send: Send | None = None) -> None:
        tree = self.tree = configuration.tree
        """The configuration in force."""
        configure_log(tree.log)
        self._endpoints = configuration.endpoints
        self._send = send
        self._reported = (0, 0)
        self._log_dropped = 0  # of the access log before its last opening
        self._bus, self._holds = configuration.bus, configuration.holds
        self._number = configuration.number
        require_gate(tree)
        self._composed = compose(tree)
        own = configuration.snapshot if not configuration.bus else ""
        self.snapshots = Snapshots(own, tree.master.snapshot_interval, log, key="limit.snapshot")
        """The snapshots of the embedded master."""
        self._bundles = load_bundles(tree, log=log)
        self._keys = load_tls(tree)
        self._link = self._new_link(tree, self._composed)
        self._memory = None if self._link is None else open_memory(configuration.memory)
        self.store = MasterStore(tree.master.store if self._link is None else "memory", log)
        self._meter = RequestMeter()
        self._control = ProcessControl(self._counted_at)
        try:
            self.gatekeeper = self._new_gatekeeper(tree, self._composed, self._link)
            """The gatekeeper in force."""
            self._advice_loop = None if configuration.advice else make_loop(tree, None, workers=1, log=log)
            self._advice = self._new_advice(tree, configuration.advice)
            self._gateway = Gateway(
                tree.origins,
                self._build_policy(),
                gate=self._fit_gate(tree),
                concurrency=concurrency_settings(tree, self._number),
            )
            self._access_log: AccessLog | None = None
            self._log_requests(self._open_access_log(configuration, self._composed))
            self._watch = ConcurrencyWatch(log)
        except BaseException:
            if self._link is not None:
                self._link.close()
            raise
        self._periodic: list[asyncio.Task[None]] = []
        self.drain_timeout = tree.gate.drain + tree.gate.drain_delay

    async def start(self, before: Backend | None = None) -> None:
        """Start to accept clients; if it replaces another gate of one process, it continues what that has counted."""
        link = self._link
        if link is not None:
            link.start(asyncio.get_running_loop())
            await wait_for_masters(link, holds=self._holds)
        self.store.start()
        await self._restore(before)
        await self._listen()
        if isinstance(before, GateProcess):
            self._continue(before)
        self._periodic = [
            asyncio.create_task(task)
            for task in (
                forget_expired(lambda: self.gatekeeper),
                self._check_bundles(),
                self._advise(),
                self._watch_concurrency(),
                *([self._watch_files()] if self.tree.gate.watch_files else []),
            )
        ]
        if link is not None and not self._number and not self._bus:
            reports = MasterReports(lambda: link.connections, log)
            short_holds = report_short_holds("gate.max_hold", self._short_limit, log)
            self._periodic += [asyncio.create_task(task) for task in (reports.run(), short_holds)]
        freeze_objects()

    async def _listen(self) -> None:
        ports = {one.listener: one.address.port for one in self._endpoints}
        settings = listener_settings(self.tree, self._keys, [ports[index] for index in range(len(ports))])
        for one in self._endpoints:
            numbers = one.of_worker(self._number, self.tree.gate.workers)
            sockets: list[socket.socket | None] = [socket.socket(fileno=os.dup(number)) for number in numbers]
            if self._send is not None:  # inherited by a worker, from a supervisor that has its own
                for descriptor in one.descriptors:
                    os.close(descriptor)
            for sock in sockets or [None]:
                try:
                    await self._gateway.start(*one.address, listener=settings[one.listener], sock=sock)
                except OSError as error:
                    raise listen_error("--listen", one.address, error) from None

    async def _watch_files(self) -> None:
        """Read certificates, keys and authorities again when their files change."""
        while True:
            await asyncio.sleep(_FILE_CHECK_INTERVAL)
            try:
                # Of two files that belong together, the second one may not be there yet.
                line = ""
                for keys in self._keys.values():
                    if await asyncio.to_thread(keys.reload_changed):
                        line = "certificates read again"
            except ConfigurationError as error:
                line = f"{error}; the certificates in force stay"
            if line and not self._number:
                log(line)

    async def _restore(self, before: Backend | None) -> None:
        """Restore the histories of the master of this process, unless `before` has them; save them from now on."""
        master = self.gatekeeper.master
        if master is None:
            return
        if not isinstance(before, GateProcess):
            await self.snapshots.restore(lambda: master)
            self.gatekeeper.obey_master(now=time.time())
        self.snapshots.start(lambda: self.gatekeeper.master or master)

    def _continue(self, before: "GateProcess") -> None:
        """Go on with what another gate has counted and learned; it has no more than the last requests of its clients.

        For these, it decides as this one: both have one gatekeeper, and count the requests in flight together.
        """
        for task in before._periodic:  # noqa: SLF001  # here and below, of this class
            task.cancel()
        kept = domains_with_kept_holds(self.tree, before._composed, self._composed)  # noqa: SLF001
        self.gatekeeper.adopt(before.gatekeeper, kept, now=time.time())
        self._meter, self._control = before._meter, before._control  # noqa: SLF001
        self._reported = before._reported[0], 0  # noqa: SLF001
        self._advice_loop = make_loop(self.tree, before._advice_loop, workers=1, log=log)  # noqa: SLF001
        self._advice = self._new_advice(self.tree, None)
        context, other = self._gateway.context, before._gateway.context  # noqa: SLF001
        context.permits = other.permits
        self._gateway.limit_concurrency(concurrency_settings(self.tree))
        context.policy = other.policy = self._build_policy()
        self._observe_requests()

    async def drain(self, seconds: float) -> None:
        drain = self.tree.gate.drain
        await self._gateway.drain(min(seconds, drain), delay=max(0.0, seconds - drain))

    async def close(self) -> None:
        await cancel_tasks(self._periodic)
        await self._gateway.drain(0)
        if self._access_log is not None:
            self._access_log.close(_LOG_TIMEOUT)
        await self.snapshots.close()
        await self.store.close()
        if self._link is not None:
            self._link.close()

    async def reload(self, configuration: GateConfiguration) -> None:
        """Put another configuration in force, as far as that is possible while clients are connected.

        TLS keys and bundles are read again in any case, bundles by a thread: that may take long. All files are read or
        opened before anything is put in force.
        """
        tree = configuration.tree
        require_gate(tree)
        known = self._composed.agents
        composed = await asyncio.to_thread(compose, tree, self.tree, known)  # it reads lists of addresses
        bundles = await asyncio.to_thread(load_bundles, tree, self._bundles, log=log)
        contexts = [client_tls(origin) for origin in tree.origins]
        new_keys = [await asyncio.to_thread(keys.read, tree.certificates) for keys in self._keys.values()]
        access_log = await asyncio.to_thread(self._open_access_log, configuration, composed)
        for put_in_force in new_keys:
            put_in_force()
        self._gateway.origins.configure(tree.origins, contexts)
        gatekeeper = self._new_gatekeeper(tree, composed, self._link)
        kept = domains_with_kept_holds(tree, self._composed, composed)
        gatekeeper.adopt(self.gatekeeper, kept, now=time.time())
        if self._link is not None:
            names = [domain.name for domain in composed.domains]
            if kept != set(names):
                self._link.set_domains(kept)  # so that the master sends the holds of the others
            self._link.set_domains(names)
        self.tree, self._composed, self.gatekeeper = tree, composed, gatekeeper
        self.drain_timeout = tree.gate.drain + tree.gate.drain_delay
        configure_log(tree.log)
        self._bundles = bundles
        self._report_arrivals()  # the new counts begin at 0
        if configuration.advice is None:
            self._advice_loop = make_loop(tree, self._advice_loop, workers=1, log=log)
        self._advice = self._new_advice(tree, configuration.advice)
        # The gateway stays, with its connections; its policy is replaced.
        self._gateway.context.policy = self._build_policy()
        self._gateway.context.configure(self._fit_gate(tree))
        self._log_requests(access_log)
        self._gateway.limit_concurrency(concurrency_settings(tree, self._number))

    def _fit_gate(self, tree: Configuration) -> Gate:
        bounds = fit_bounds(tree.gate.bounds, log if not self._number else lambda _: None)
        return replace(tree.gate, bounds=bounds)

    async def state(self, *, whole: bool) -> GateState:
        """Return the state; who is held longest only if `whole`: that looks at every hold, with pauses for requests."""
        held: dict[str, tuple[HeldIdentifier, ...]] = {}
        if whole:
            sections = {section.name: section for section in self.tree.domain}
            for domain in self._composed.domains:
                section = sections.get(domain.name)
                method = (section.identify if section is not None else "") or self.tree.gate.identify
                shown = identifier_text if method == "client-address" else identifier_digest
                held[domain.name] = await longest_holds(self.gatekeeper, domain.name, shown)
        pools = self._gateway.origins.pools
        return GateState(
            domains=tuple(
                domain_state(self.gatekeeper, domain, held.get(domain.name, ())) for domain in self._composed.domains
            ),
            delayed_now=self.gatekeeper.delayed,
            connections=self._gateway.connection_states,
            upstream_connections={pool.name: pool.connection_states for pool in pools},
            master=self.tree.gate.master_text,
            masters=self._masters(),
            store=self.store.state,
            concurrency=self._concurrency(),
            counters=self._counters(),
            origins={pool.name: OriginState(pool.is_failed, pool.failure) for pool in pools},
            advice=self.advice_states(),
        )

    def advice_states(self) -> tuple[AdviceState, ...]:
        """Return what is published as traffic advice, by class."""
        return self._advice_loop.state() if self._advice_loop is not None else static_states(self.tree)

    def _masters(self) -> tuple[LinkedMasterState, ...]:
        connections = [] if self._link is None or self._bus else self._link.connections
        return tuple(LinkedMasterState(master.address, master.is_up) for master in connections)

    def _concurrency(self) -> ConcurrencyState | None:
        permits = self._gateway.context.permits
        return permits.limit.state if permits is not None else None

    async def _watch_concurrency(self) -> None:
        """Log when the concurrency limit rejects requests."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            state = self._concurrency()
            if state is not None:
                self._watch.look(state, now=time.monotonic())

    def _counters(self) -> Counters:
        requests = self._meter.read([domain.name for domain in self._composed.domains], self._gateway.origins.pools)
        counters = read_counters(("gateway", self._gateway.context.counters), ("", requests))
        if self.gatekeeper.master is not None:
            totals = MasterTotals.of(self.gatekeeper.master)
            counters |= read_counters(("master", totals)) | self.store.counters()
        dropped = self._log_dropped + (self._access_log.dropped if self._access_log is not None else 0)
        counters |= read_counters(("access_log", AccessLogCounters(dropped)))
        return counters | gatekeeper_counters(self.gatekeeper, self._link)

    def _open_access_log(self, configuration: GateConfiguration, composed: Composition) -> AccessLog | None:
        settings = configuration.tree.log
        namer, access_log = identifier_namer(settings, configuration.log_key), None
        if settings.access:
            access_log = AccessLog(settings, composed.address, configuration.log_key, log=log)
        self._namer = namer
        return access_log

    def _log_requests(self, access_log: AccessLog | None) -> None:
        """Count each request, and log it from now on in `access_log`, if there is one."""
        if self._access_log is not None:
            self._log_dropped += self._access_log.dropped
            self._access_log.close()
        self._access_log = access_log
        self._observe_requests()

    def _observe_requests(self) -> None:
        observe: Observe = self._meter.count
        if self._access_log is not None:
            observe = _both(observe, self._access_log.add)
        if self.tree.admin.control:
            observe = _both(observe, self._control.add)
        self._gateway.context.observe = observe

    def _build_policy(self) -> GatewayPolicy:
        self._control.configure(self.gatekeeper, self._composed.domains, self._composed.address)
        return build_policy(self.tree, self._composed, self.gatekeeper, self._bundles, self._advice, log=log)

    async def answer(self, name: str, argument: Any) -> Any:
        if name == "sample":
            return self._parts().sample(tables=argument)
        if name == "details":
            return await self._parts().details(argument, self._namer)
        if name in {"find", "why", "hold", "release"}:
            return getattr(self._control, name)(**argument)
        return await super().answer(name, argument)

    def _parts(self) -> GateParts:
        return GateParts(self._gateway, self._meter, self.gatekeeper, self._link, self._composed.domains)

    def _counted_at(self, domain: str, identifier: bytes) -> str:
        """Return the master that counts the requests of an identifier."""
        address = self._link.owner(domain, identifier) if self._link is not None and not self._bus else ""
        return address or self.tree.gate.master_text

    def on_message(self, message: Any) -> None:
        if isinstance(message, AdvicePublication):
            self._advice.publish(message)

    async def _advise(self) -> None:
        """Report what was counted, and decide if that is done here."""
        while True:
            await asyncio.sleep(report_interval(self.tree))
            self._report_arrivals()
            if self._advice_loop is not None:
                publication = self._advice_loop.tick(now=time.monotonic())
                if publication is not None:
                    self._advice.publish(publication)

    def _report_arrivals(self) -> None:
        """Report to what computes the traffic advice, here or in the supervisor."""
        if self._advice.arrivals is None:
            return
        rejected, failed = self._reported
        now_rejected = sum(totals.rejected for totals in self.gatekeeper.totals.values())
        unreachable = sum(pool.failures["unreachable"] for pool in self._gateway.origins.pools)
        self._reported = now_rejected, unreachable
        concurrency = self._concurrency()
        capacity = concurrency.capacity if concurrency is not None else 0.0
        report = AdviceReport(
            self._advice.arrivals.take(), max(0, now_rejected - rejected), max(0, unreachable - failed), capacity
        )
        if self._advice_loop is not None:
            self._advice_loop.take(report)
        elif self._send is not None:
            self._send(report)

    def _new_advice(self, tree: Configuration, published: AdvicePublication | None) -> GateAdvice:
        return GateAdvice(tree, published if self._advice_loop is None else self._advice_loop.publication)

    async def _check_bundles(self) -> None:
        """Load bundles whose files were replaced."""
        while True:
            await asyncio.sleep(_BUNDLE_CHECK_INTERVAL)
            if self._bundles is not None:
                self._bundles.check()

    def _short_limit(self) -> float | None:
        """Return `gate.max_hold` if it has shortened a hold, otherwise None."""
        limit = self.tree.gate.max_hold
        is_limit = self.gatekeeper.shortened and max_hold(self.tree, self._composed.domains) == limit
        return limit if is_limit else None

    def _new_link(self, tree: Configuration, composed: Composition) -> GatekeeperLink | None:
        names = [domain.name for domain in composed.domains]
        if self._bus:
            # On one machine the master should know soon; the number of messages matters less.
            return GatekeeperLink(self._bus, names, batch_delay=0.0)
        gate, keys = tree.gate, read_keys(tree)
        if gate.master == "embedded":
            return None
        return GatekeeperLink(gate.masters, names, shard=gate.shard, keys=keys, log=log)

    def _new_gatekeeper(self, tree: Configuration, composed: Composition, link: GatekeeperLink | None) -> Gatekeeper:
        account = link.account if link is not None else None
        gatekeeper = build_gatekeeper(tree, composed.domains, account, self.store, self._memory)
        if link is not None:
            link.attach(gatekeeper)
        if gatekeeper.master is not None:
            self.store.attach(gatekeeper.master, gatekeeper.obey)
        return gatekeeper


def freeze_objects() -> None:
    """Have the garbage collector free what is unused, and look no more at the objects that are there: they stay."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _both(first: Observe, second: Observe) -> Observe:
    return lambda record: (first(record), second(record))


if __name__ == "__main__":
    sys.exit(run_worker(Configure[GateConfiguration] | Query | Shutdown | AdvicePublication, GateProcess))
