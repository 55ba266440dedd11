"""The gate as a server: configuration, admin listener, demonstration, and one process or several workers."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.config import Address, Configuration
from headgate.errors import ConfigurationError
from headgate.observe import gate_metrics
from headgate.runtime.admin_server import start_admin
from headgate.runtime.gate.build import log_warnings, restart_keys
from headgate.runtime.gate.process import GateConfiguration, GateProcess
from headgate.runtime.gate.workers import GateWorkers
from headgate.runtime.lifecycle import Lifecycle, Server, run_server
from headgate.runtime.listen import reserve_addresses


@dataclass(frozen=True)
class GateOptions:
    """What a gate needs beside its configuration."""

    read: Callable[[], tuple[Configuration, str | None]]
    """Reads the configuration, at the start and at each reload; also returns the name of its file, if there is one."""
    demo: bool = False
    """Whether to start a sample origin, and to print what to try."""
    require_admin: bool = False
    """Whether an admin address that is in use is an error although it is the default one."""


def run_gate(options: GateOptions) -> int:
    """Run a gate until a signal stops it; returns the exit code."""
    tree, _ = options.read()
    return run_server(_GateServer(options, tree), loop=tree.gate.loop)


class _GateServer(Server):
    """A gate in its life-cycle."""

    def __init__(self, options: GateOptions, tree: Configuration) -> None:
        super().__init__()
        self._options = options
        self._tree = tree
        self._address = Address.parse(tree.gate.listen)
        self._demo_origin = ""
        self._admin = "none"

    async def start(self, lifecycle: Lifecycle) -> None:
        if self._options.demo:
            from headgate.runtime.demo_origin import DemoOrigin

            origin = DemoOrigin()
            self.closing.push_async_callback(origin.close)
            self._demo_origin = await origin.start()
            self._tree = self._with_demo_origin(self._tree)
        reserved = self.closing.enter_context(reserve_addresses("--listen", self._address))
        configuration = GateConfiguration(self._tree, self._address._replace(port=reserved[0].port))
        self._address = reserved[0]
        self.backend = GateProcess(configuration) if self._tree.gate.workers == 1 else GateWorkers(configuration)
        self.closing.push_async_callback(self.backend.close)
        if self._tree.gate.admin:
            await self._start_admin(lifecycle)
        await self.backend.start()

    async def _start_admin(self, lifecycle: Lifecycle) -> None:
        """Open the admin listener; without one where the default address is in use, as by another gate."""
        configured = self._tree.gate.admin
        state, unready = self.backend.state, lifecycle.unready
        try:
            bound = await start_admin(
                Address.parse(configured), self.closing, state=state, unready=unready, collect=gate_metrics
            )
        except ConfigurationError:
            if self._options.require_admin or configured != Configuration().gate.admin:
                raise
        else:
            self._admin = f"http://{bound[0]}"

    def announce(self) -> None:
        gate = self._tree.gate
        url = f"{'https' if gate.tls.cert else 'http'}://{self._address}"
        if self._options.demo:
            from headgate.runtime.demo_origin import demo_banner

            print(demo_banner(url, self._admin, gate.origin), flush=True)  # noqa: T201  # for people, on stdout
        elif self._admin == "none" and gate.admin:
            self.log(f"headgate: {gate.admin} is in use; starting without admin listener (choose another with --admin)")
        log_warnings(self._tree, self.log)
        self.log(f"headgate: origin {gate.origin} master {gate.master} workers {gate.workers} admin {self._admin}")
        # Scripts take the address from this line, so it has nothing else.
        self.log(f"ready {url}")

    async def reload(self) -> None:
        tree, file = self._options.read()
        tree = self._with_demo_origin(tree)
        restart = restart_keys(self._tree, tree)
        await self.backend.reload(GateConfiguration(tree, self._address))
        log_warnings(tree, self.log)
        sources = [*([file] if file else []), *(["the certificate"] if tree.gate.tls.cert else [])]
        rest = f"; a restart is needed for {', '.join(restart)}" if restart else ""
        self.log(f"headgate: {' and '.join(sources) or 'nothing'} read again{rest}")

    def _with_demo_origin(self, tree: Configuration) -> Configuration:
        return replace(tree, gate=replace(tree.gate, origin=self._demo_origin)) if self._demo_origin else tree
