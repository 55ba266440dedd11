"""The gate as a server: configuration, admin listener, demonstration, and one process or several.

Several workers share the listening address and, unless it is elsewhere, the one master of their supervisor, which
forwards no request. The bus to that master is a socket in a private directory, which is removed at the end.
"""

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace
from prometheus_client.core import Metric

from headgate.config import Configuration, domain_changes, log_warnings
from headgate.config.section import UNIX
from headgate.config.toml_reader import key_file_warnings
from headgate.config.tree import changed_keys, keep_keys, restart_note, with_mode
from headgate.errors import ConfigurationError, HeadgateError, fail_if
from headgate.limit import Master
from headgate.link import MasterLink
from headgate.observe import AdviceState, GateState, MasterTotals, gate_metrics, merge_states, read_counters
from headgate.observe.feed import Minute
from headgate.observe.state import ended_state
from headgate.origin.gateway.meter import RequestCounters
from headgate.origin.gateway.record import GatewayCounters
from headgate.origin.sidecar.unix_socket import UnixSocket
from headgate.runtime.access_log import AccessLogCounters, check_access_log
from headgate.runtime.admin import admin_url, start_admin
from headgate.runtime.control import master_control
from headgate.runtime.gate_advice import AdviceReport, make_loop, report_interval, static_states
from headgate.runtime.gate_build import (
    REPLACED_KEYS,
    build_master,
    check_composition,
    compose,
    concurrency_settings,
    new_memory,
    read_keys,
    require_gate,
    snapshot_file,
)
from headgate.runtime.gate_overview import gate_overview
from headgate.runtime.gate_process import GateConfiguration, GateProcess, freeze_objects
from headgate.runtime.gatekeeping import GATEKEEPER_GROUPS
from headgate.runtime.ipc import Configure, Ready, Reply, StartFailed
from headgate.runtime.lifecycle import Backend, ReadConfiguration, Server, cancel_tasks
from headgate.runtime.listen import ListenerSockets, take_at
from headgate.runtime.log import configure_log, log, log_counters, write_line
from headgate.runtime.master_store import MasterStore
from headgate.runtime.service_manager import take_sockets
from headgate.runtime.snapshot import Snapshots
from headgate.runtime.supervisor import Supervisor, WorkerProcess
from headgate.runtime.takeover import Predecessor, serve_takeover

if TYPE_CHECKING:
    from headgate.runtime.asgi_server import AsgiServer

GATE_GROUPS: Final = (
    *GATEKEEPER_GROUPS,
    ("", RequestCounters),
    ("gateway", GatewayCounters),
    ("access_log", AccessLogCounters),
    ("master", MasterTotals),
)
"""The groups of counters of a gate without a store."""


class GateServer(Server):
    """A gate in its life-cycle.

    `demo` starts a sample origin, and prints what to try. With `require_admin`, an admin address that is in use is an
    error although it is the default one.
    """

    kind = "gate"

    def __init__(self, read: ReadConfiguration, *, demo: bool = False, require_admin: bool = False) -> None:
        super().__init__()
        self._read = read
        self._demo = demo
        self._require_admin = require_admin
        self._tree, self._file = read()
        self.loop = self._tree.gate.loop
        self._reloading = asyncio.Lock()
        self._listeners: ListenerSockets
        self._admin: AsgiServer | None = None
        self._takeover: asyncio.Task[None] | None = None
        self._gate: GateProcess | GateWorkers
        self._draining: asyncio.Task[None] | None = None
        self._files = self.closing.enter_context(ExitStack())
        self._unix: list[UnixSocket] = []
        self._demo_origin = ""
        self._log_key = os.urandom(32)  # the hashes of clients stay the same over reloads

    async def start(self) -> None:
        configure_log(self._tree.log)
        if self._demo:
            from headgate.runtime.demo_origin import DemoOrigin

            origin = DemoOrigin()
            self.closing.push_async_callback(origin.close)
            self._demo_origin = await origin.start()
            self._tree = self._with_demo_origin(self._tree)
        self._keys = read_keys(self._tree)
        takeover = self._tree.gate.takeover
        predecessor = Predecessor(takeover) if takeover else None
        admin = self._open_sockets(predecessor.sockets if predecessor is not None else [])
        self._gate = self.backend = self._new_gate(self._tree, self._listeners)
        self.closing.push_async_callback(lambda: self._gate.close())  # noqa: PLW0108  # the last gate, not this one
        if not admin:
            self._admin = await self._start_admin(self._tree)
        await self._gate.start()
        if predecessor is not None:
            await predecessor.replace()
            self._takeover = self._serve_takeover(takeover)
        if admin:  # the predecessor has answered until now
            self._admin = await self._start_admin(self._tree, admin[0])

    def _new_gate(self, tree: Configuration, listeners: ListenerSockets) -> "GateProcess | GateWorkers":
        configuration = GateConfiguration(
            tree,
            tuple(listeners.endpoints),
            snapshot=snapshot_file(tree, self._file),
            log_key=self._log_key,
        )
        return GateProcess(configuration) if tree.gate.workers == 1 else GateWorkers(configuration)

    def _open_sockets(self, inherited: list[socket.socket]) -> list[socket.socket]:
        """Open the sockets of all listeners, unless they are inherited; return those of the admin listener that are."""
        named = take_sockets(os.environ)
        inherited += [sock for _, sock in named]
        self._listeners = ListenerSockets(self._tree, inherited, self._files)
        self._unix = self._listeners.unix
        admin = take_at(self._tree.gate.admin, inherited) if self._tree.gate.admin else []
        for name, sock in named:
            fail_if(
                sock in inherited,
                f"the service manager passes socket {name!r} at {sock.getsockname()}, where no listener is; set "
                "gate.listen to its address",
            )
        for sock in inherited:  # of listeners that the predecessor has, and this gate has not
            sock.close()
        return admin

    async def _hand_over(self) -> list[int]:
        """Return all listening sockets, for another gate, which restores the histories that are saved now."""
        await self._gate.snapshots.save()
        admin = self._admin.descriptors if self._admin is not None else []
        return [*(one.fileno() for one in self._listeners.sockets), *admin]

    def _be_replaced(self) -> None:
        """Drain: another gate is ready, to which all files belong from now on."""
        log("another gate takes over")
        self._files.pop_all()
        self._gate.snapshots.stop()
        if self._admin is not None:
            self.start_task(self._admin.close())
        self.stop(self._tree.gate.drain)

    def release(self) -> None:
        self._listeners.close()

    async def _start_admin(self, tree: Configuration, sock: socket.socket | None = None) -> "AsgiServer | None":
        """Open the admin listener; without one where the default address is in use, as by another gate."""
        self.admin = ()
        try:
            return await start_admin(self, tree.gate.admin, tree.admin, sock=sock)
        except ConfigurationError:
            if self._require_admin or tree.gate.admin != Configuration().gate.admin:
                raise
            return None

    def _serve_takeover(self, path: str) -> "asyncio.Task[None] | None":
        """Have another process take over through the unix socket at `path`, until the task is cancelled."""
        if not path:
            return None
        takeover = UnixSocket(path, mode=0o600, flag="gate.takeover")

        def be_replaced() -> None:
            takeover.close()
            self._be_replaced()

        task = self.start_task(serve_takeover(takeover.socket, self._hand_over, be_replaced))
        task.add_done_callback(lambda _: takeover.close())
        return task

    async def _replace_gate(self, tree: Configuration) -> None:
        """Start another gate in this process, with the sockets of the one in force; once it is ready, that one drains.

        If it cannot start, this raises, and the one in force stays.
        """
        if self._draining is not None:
            await asyncio.wait([self._draining])  # so that there are two at most
        async with AsyncExitStack() as opened:
            opened.callback(setattr, self, "admin", self.admin)
            opened.callback(configure_log, self._tree.log)
            await self._open_gate(tree, opened)

    async def _open_gate(self, tree: Configuration, opened: AsyncExitStack) -> None:
        """Start the gate for `tree`, and open what it has and the gate in force has not; `opened` closes that again."""
        before, admin, takeover = self._tree, self._admin, self._takeover
        files = opened.enter_context(ExitStack())
        inherited = [_duplicate(one.fileno()) for one in self._listeners.sockets]
        try:
            listeners = ListenerSockets(tree, inherited, files)
        finally:
            for sock in inherited:  # of listeners that are not configured any more
                sock.close()
        if changed_keys(before, tree, ("gate.admin", "admin")):
            is_same = admin is not None and tree.gate.admin == before.gate.admin
            admin = await self._start_admin(tree, _duplicate(admin.descriptors[0]) if admin and is_same else None)
            if admin is not None:
                opened.push_async_callback(admin.close)
        if tree.gate.takeover != before.gate.takeover:
            takeover = self._serve_takeover(tree.gate.takeover)
            if takeover is not None:
                opened.callback(takeover.cancel)
        if not (tree.gate.workers == before.gate.workers == 1):
            await self._gate.snapshots.save()
        gate = self._new_gate(tree, listeners)
        opened.push_async_callback(gate.close)
        opened.callback(gate.snapshots.stop)
        await gate.start(self._gate)
        opened.pop_all()
        self._files.enter_context(files.pop_all())
        self._gate.snapshots.stop()
        self._listeners.close()
        kept = {one.address.removeprefix(UNIX) for one in tree.listeners}
        for removed in [one for one in self._unix if one.path not in kept]:
            removed.close()
        self._unix = [one for one in self._unix if one.path in kept] + listeners.unix
        self._draining = self.start_task(_drain_replaced(self._gate, before.gate.drain))
        if self._takeover is not None and takeover is not self._takeover:
            self._takeover.cancel()
        if self._admin is not None and admin is not self._admin:
            self.start_task(self._admin.close())
        self._gate, self.backend, self._listeners, self._admin, self._takeover = gate, gate, listeners, admin, takeover

    async def drain(self, seconds: float) -> None:
        if self._draining is not None and not seconds:
            self._draining.cancel()
        await super().drain(seconds)
        if self._draining is not None:
            await asyncio.wait([self._draining])

    async def overview(self, minute: Minute) -> dict[str, Any]:
        """Return what the dashboard shows besides the rows of `minute`."""
        answers = [one for one in await self.ask("details", minute) if one is not None]
        overview = gate_overview(self._tree, minute, answers, self._gate.advice_states())
        return {**overview, "store": self._gate.store.state}

    def metrics(self, state: GateState) -> Iterator[Metric]:
        """Make the metrics of a gate."""
        return gate_metrics(state, [*GATE_GROUPS, *self._gate.store.groups()])

    def announce(self) -> None:
        gate = self._tree.gate
        origins = ",".join(origin.url for origin in self._tree.origins)
        url, *others = [one.url(tls=self._tree.listeners[one.listener].tls) for one in self._listeners.endpoints]
        if self._demo:
            from headgate.runtime.demo_origin import demo_banner

            print(demo_banner(url, admin_url(self), origins), flush=True)  # noqa: T201  # for people, on stdout
        elif gate.admin and not self.admin:
            log(f"{gate.admin} is in use; starting without admin listener (choose another with --admin)")
        log_warnings(self._tree, log)
        for warning in key_file_warnings(gate.curve_key):
            log(warning)
        for other in others:
            log(f"also listening at {other}")
        log(f"origin {origins} master {gate.master_text} workers {gate.workers} admin {admin_url(self)}")
        # Scripts read the address from this line, so it contains nothing else.
        write_line(f"ready {url}")

    async def reload(self) -> None:
        tree, file = self._read()
        tree = self._with_demo_origin(tree)
        changes = domain_changes(self._tree.domain, tree.domain)
        rest = restart_note(self._tree, tree, ("gate.loop",))
        tree = keep_keys(self._tree, tree, ("gate.loop",))
        keys = read_keys(tree)
        replaced = changed_keys(self._tree, tree, REPLACED_KEYS) + ["the keys for the master"] * (keys != self._keys)
        if replaced:
            rest += f"; a new gate in this process has taken over, because of {', '.join(replaced)}"
        await self._put_in_force(tree, is_replaced=bool(replaced))
        self._keys = keys
        configure_log(tree.log)
        log_warnings(tree, log)
        sources = [*([file] if file else []), *(["the certificates"] if tree.certificates else [])]
        sources += ["the access log"] if tree.log.access else []
        what = (
            f"{' and '.join(sources)} read again"
            if sources
            else "nothing to reload: started without a configuration file"
        )
        log(f"{what}{changes}{rest}")

    async def _put_in_force(self, tree: Configuration, *, is_replaced: bool = False) -> None:
        async with self._reloading:
            if is_replaced:
                await self._replace_gate(tree)
            else:
                await self._gate.reload(
                    GateConfiguration(tree, tuple(self._listeners.endpoints), log_key=self._log_key)
                )
            self._tree = tree

    def scope(self, act: str) -> str:
        """Return where else a client must be held or released."""
        gate = self._tree.gate
        if gate.master != "embedded":
            return f"; at this gate only: {act} it first at the master {gate.master_text}, then at the other gates"
        return (
            ""
            if self._gate.store.redis is None
            else f"; at this gate only: {act} it at each gate that shares the store"
        )

    async def set_mode(self, domain: str, mode: str) -> None:
        """Change the mode of a domain until the next reload."""
        if self._tree.gate.master != "embedded":
            raise HeadgateError(f"the master applies the rules; set the mode at {self._tree.gate.master_text}")
        await self._put_in_force(with_mode(self._tree, domain, mode))

    def _with_demo_origin(self, tree: Configuration) -> Configuration:
        return replace(tree, gate=replace(tree.gate, origin=self._demo_origin)) if self._demo_origin else tree


def _duplicate(descriptor: int) -> socket.socket:
    # Not `socket.dup`: that would have both block.
    return socket.socket(fileno=os.dup(descriptor))


async def _drain_replaced(gate: "GateProcess | GateWorkers", seconds: float) -> None:
    try:
        await gate.drain(seconds)
    finally:
        await gate.close()
        del gate
        freeze_objects()


class GateWorkers(Backend):
    """The workers, and the master that they share unless it is elsewhere.

    Raises `ConfigurationError` for a configuration that cannot be served.
    """

    module: str = "headgate.runtime.gate_process"
    message_type: Any = Ready | StartFailed | Reply | AdviceReport
    initial_state: GateState = GateState(workers=0)

    def __init__(self, configuration: GateConfiguration) -> None:
        tree = configuration.tree
        require_gate(tree)
        check_composition(tree)
        self._configuration = configuration
        self._closing = ExitStack()
        self._ended = self.initial_state
        inherited = [descriptor for one in configuration.endpoints for descriptor in one.descriptors]
        self._supervisor = Supervisor(self, tree.gate.workers, loop=tree.gate.loop, descriptors=inherited)
        self._advice_loop = make_loop(tree, None, workers=tree.gate.workers, log=log)
        self._advising: asyncio.Task[None] | None = None
        self.drain_timeout = tree.gate.drain + tree.gate.drain_delay
        self._link: MasterLink | None = None
        self.store = MasterStore(
            tree.master.store if tree.gate.master == "embedded" else "memory",
            log,
        )
        self.snapshots = Snapshots(configuration.snapshot, tree.master.snapshot_interval, log, key="limit.snapshot")
        """The snapshots of the master."""

    async def start(self, before: Backend | None = None) -> None:  # noqa: ARG002  # its histories are in the snapshot
        folder = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="headgate-")))
        memory = folder / "arrivals"
        memory.write_bytes(new_memory())
        self._configuration = replace(self._configuration, memory=str(memory))
        if self._configuration.tree.gate.master == "embedded":
            self._configuration = replace(self._configuration, bus=f"ipc://{folder / 'bus'}")
            master = await self.snapshots.restore(lambda: self._new_master(self._configuration.tree))
            link = self._link = MasterLink(master, self._configuration.bus, log=log)
            self.snapshots.start(lambda: link.master)
            self._closing.callback(self._link.close)
            self.store.attach(self._link.master, self._link.publish)
            self.store.start()
            self._link.start(asyncio.get_running_loop())
        await self._supervisor.start()
        self._advising = asyncio.get_running_loop().create_task(self._advise())

    def unready(self) -> str:
        return self._supervisor.unready()

    def workers(self) -> dict[str, tuple[int, bool]]:
        return self._supervisor.processes()

    async def state(self, *, whole: bool) -> GateState:
        """Return the sum of all workers' states, with the totals of those that have ended."""
        states = await self._supervisor.states(whole=whole)
        own = GateState(workers=0, counters=read_counters(("log", log_counters())))
        total = merge_states([self._ended, own, *states])
        counters = dict(total.counters)
        if self._link is not None:
            totals = MasterTotals.of(self._link.master)
            counters |= read_counters(("master", totals)) | self.store.counters()
        tree = self._configuration.tree
        concurrency = total.concurrency if concurrency_settings(tree) is not None else None
        return replace(
            total,
            master=tree.gate.master_text,
            store=self.store.state,
            concurrency=concurrency,
            counters=counters,
            advice=self.advice_states(),
        )

    def advice_states(self) -> tuple[AdviceState, ...]:
        """Return what is published as traffic advice, by class."""
        tree = self._configuration.tree
        return static_states(tree) if self._advice_loop is None else self._advice_loop.state()

    async def ask(self, name: str, argument: Any) -> list[Any]:
        """Return the answers of all workers; the master that they share holds and releases first."""
        if self._link is not None and name in {"hold", "release"}:
            getattr(master_control(self._link, self._configuration.tree.gate.ipv6_prefix), name)(**argument)
        answers = await asyncio.gather(*(worker.ask(name, argument) for worker in self._supervisor.workers))
        return [None if one is None else msgspec.msgpack.decode(one) for one in answers]

    async def reload(self, configuration: GateConfiguration) -> None:
        tree = configuration.tree
        require_gate(tree)
        # In a thread: bundles are read whole, and the master that the workers share runs in this loop.
        await asyncio.to_thread(check_composition, tree)
        await asyncio.to_thread(check_access_log, tree.log)
        self._configuration = replace(self._configuration, tree=tree)
        self.drain_timeout = tree.gate.drain + tree.gate.drain_delay
        if self._link is not None:
            master = self._new_master(tree)
            master.adopt(self._link.master, now=time.time())
            self._link.set_master(master)
            self.store.attach(master, self._link.publish)
        self._advice_loop = make_loop(tree, self._advice_loop, workers=tree.gate.workers, log=log)
        self._supervisor.reload()

    async def drain(self, seconds: float) -> None:
        await self._supervisor.stop(seconds)

    async def close(self) -> None:
        if self._advising is not None:
            await cancel_tasks([self._advising])
        await self._supervisor.stop(0)
        if self._link is not None:
            self._link.receive_rest()
        await self.snapshots.close()
        await self.store.close()
        self._closing.close()

    def configuration(self, number: int) -> Configure[GateConfiguration]:
        """Return the configuration of a worker."""
        advice = None if self._advice_loop is None else self._advice_loop.publication
        holds = self._link is not None and len(self._link.master) > 0
        return Configure(replace(self._configuration, number=number, advice=advice, holds=holds))

    def on_worker_message(self, worker: WorkerProcess[GateState], message: Any) -> None:
        """Take a report for the traffic advice."""
        if self._advice_loop is not None:
            self._advice_loop.take(message, worker=worker.number)

    def on_worker_exit(self, worker: WorkerProcess[GateState]) -> None:
        """Keep the totals of a worker that has ended."""
        self._ended = merge_states([self._ended, ended_state(worker.last_state)])

    async def _advise(self) -> None:
        """Decide on the traffic advice, and give the workers a document that has changed."""
        while True:
            await asyncio.sleep(report_interval(self._configuration.tree))
            publication = None if self._advice_loop is None else self._advice_loop.tick(now=time.monotonic())
            if publication is not None:
                for worker in self._supervisor.workers:
                    worker.channel.send(publication)

    def _new_master(self, tree: Configuration) -> Master:
        return build_master(tree, compose(tree).domains, self.store)
