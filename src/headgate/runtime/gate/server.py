"""The gate as a server: configuration, admin listener, demonstration, and one process or several workers."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

from msgspec.structs import replace

from headgate.config import Address, Configuration
from headgate.observe import State, gate_metrics
from headgate.runtime.admin_server import AdminServer
from headgate.runtime.gate.build import log_warnings
from headgate.runtime.gate.options import GateOptions
from headgate.runtime.gate.process import GateProcess
from headgate.runtime.gate.workers import GateWorkers
from headgate.runtime.lifecycle import Server, run_server
from headgate.runtime.listen import listen_error

__all__ = ["run_gate"]


def run_gate(options: GateOptions) -> int:
    """Run a gate until a signal stops it; returns the exit code."""
    tree, _ = options.read()
    return run_server(_GateServer(options, tree), loop=tree.gate.loop)


class _Backend(Protocol):
    """What accepts clients: this process, or its workers."""

    async def start(self) -> Address:
        """Start; returns the address that it listens at."""

    def unready(self) -> str:
        """Return why no client is accepted although it has started; empty when they are."""

    async def state(self, *, whole: bool) -> State:
        """Return the state; who is held longest only if `whole`."""

    async def reload(self, tree: Configuration) -> list[str]:
        """Put another configuration in force; returns the changed keys that need a restart."""

    async def drain(self, seconds: float) -> None:
        """Accept no more clients, and wait for requests under way."""

    async def close(self) -> None:
        """Release everything."""


class _GateServer(Server):
    """A gate in its life-cycle."""

    def __init__(self, options: GateOptions, tree: Configuration) -> None:
        self._options = options
        self._closing = AsyncExitStack()
        self._demo_origin = ""
        self._tree = tree
        self._backend: _Backend | None = None
        self._admin: AdminServer[State] | None = None
        self._address = Address.parse(self._tree.gate.listen)

    @property
    def drain_timeout(self) -> float:
        return self._tree.gate.drain

    async def start(self, unready: Callable[[], str], fail: Callable[[BaseException], None]) -> None:  # noqa: ARG002  # nothing of a gate fails by itself
        if self._options.demo:
            from headgate.runtime.demo_origin import DemoOrigin

            origin = DemoOrigin()
            self._closing.push_async_callback(origin.close)
            self._demo_origin = await origin.start()
            self._tree = self._with_demo_origin(self._tree)
        backend = GateProcess(self._tree) if self._tree.gate.workers == 1 else GateWorkers(self._tree)
        self._backend = backend
        self._closing.push_async_callback(backend.close)
        if self._tree.gate.admin:
            await self._start_admin(backend, unready)
        self._address = await backend.start()

    async def _start_admin(self, backend: _Backend, unready: Callable[[], str]) -> None:
        """Open the admin listener; without one where the default address is in use, as by another gate."""
        configured = self._tree.gate.admin
        address = Address.parse(configured)
        admin = AdminServer(backend.state, unready, gate_metrics)
        try:
            await admin.start(address)
        except OSError as error:
            if self._options.require_admin or configured != Configuration().gate.admin:
                raise listen_error("--admin", address, error) from None
            return
        self._closing.push_async_callback(admin.close)
        self._admin = admin

    def announce(self) -> None:
        gate = self._tree.gate
        url = f"{'https' if gate.tls.cert else 'http'}://{self._address}"
        admin = self._admin.url if self._admin is not None else "none"
        if self._options.demo:
            from headgate.runtime.demo_origin import demo_banner

            print(demo_banner(url, admin, gate.origin), flush=True)  # noqa: T201  # for people, on stdout
        elif self._admin is None and gate.admin:
            self.log(f"headgate: {gate.admin} is taken, so there is no admin listener; choose another with --admin")
        log_warnings(self._tree, self.log)
        self.log(f"headgate: origin {gate.origin} master {gate.master} workers {gate.workers} admin {admin}")
        # Scripts take the address from this line, so it has nothing else.
        self.log(f"ready {url}")

    def unready(self) -> str:
        return self._backend.unready() if self._backend is not None else "starting"

    async def reload(self) -> None:
        assert self._backend is not None, "a reload follows the start"
        tree, file = self._options.read()
        tree = self._with_demo_origin(tree)
        restart = await self._backend.reload(tree)
        self._tree = tree
        log_warnings(tree, self.log)
        sources = [*([file] if file else []), *(["the certificate"] if tree.gate.tls.cert else [])]
        rest = f"; a restart is needed for {', '.join(restart)}" if restart else ""
        self.log(f"headgate: {' and '.join(sources) or 'nothing'} read again{rest}")

    async def drain(self, seconds: float) -> None:
        if self._backend is not None:
            await self._backend.drain(seconds)

    async def close(self) -> None:
        await self._closing.aclose()

    def _with_demo_origin(self, tree: Configuration) -> Configuration:
        return replace(tree, gate=replace(tree.gate, origin=self._demo_origin)) if self._demo_origin else tree
