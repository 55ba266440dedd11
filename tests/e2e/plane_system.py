"""A data plane under test: nginx or HAProxy with a sidecar, a master, and an origin behind it.

Each part is a process that a fault test may stop, kill and start again. The domain `default` permits one request an
hour for each identifier, the value of the header X-Client, so that one accepted request gives a hold that outlasts
every test.
"""

import os
import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests import servers
from tests.e2e import programs
from tests.e2e.fault_node import Node, until
from tests.e2e.fault_system import ORIGIN, ORIGIN_HTTP, headgate_command, port_pair

DOMAIN = "default"
RULE = "1/h burst 1"
ACCEPTED, REJECTED = 200, 429
_HOLD_PATIENCE = 1.0
"""Seconds in which the hold of a request should be in force; then another identifier is tried."""

SETTINGS = """\
[sidecar]
identify = "header:x-client"
max_delay = 0
rejection_status = 429
[[domain]]
name = "default"
rules = ["{rule}"]
algorithm = "log"
"""


@dataclass(frozen=True)
class Plane:
    """One kind of data plane: the server's program, and how a command line names it."""

    name: str
    """As in `--print-conf` and, with dashes before it, the option of the sidecar."""
    program: str
    socket: str
    """The name of the unix socket."""
    sidecar_decides: bool = False
    """Whether the server accepts all requests while the sidecar does not answer, and while it has no holds yet."""
    reload_empties: bool = False
    """Whether a reload of the server empties its table of holds, as a restart does."""

    @property
    def needed(self) -> str:
        """What must be installed, by its name in `@pytest.mark.needs`."""
        return "nginx-lua" if self.name == "nginx-lua" else self.program

    def server_command(self, folder: Path, settings: Path) -> list[str]:
        """Return the command that runs the server in the foreground."""
        program = servers.find_program(self.program) or self.program
        if self.program == "nginx":
            return [program, "-p", str(folder), "-e", "stderr", "-c", str(settings)]
        return [program, "-W", "-f", str(settings)]


PLANES = {
    plane.name: plane
    for plane in (
        Plane("nginx-lua", "nginx", "lua.sock"),
        Plane("auth-request", "nginx", "auth.sock", sidecar_decides=True),
        Plane("haproxy", "haproxy", "haproxy.sock", reload_empties=True),
    )
}


class TimedNode(Node):
    """A node that remembers when it was restarted."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, *, port: int, announces: bool = True) -> None:
        super().__init__(name, command, folder, port=port, announces=announces)
        self.restarts: list[float] = []
        """Monotonic seconds."""

    def launch(self) -> None:
        """Start a process."""
        self.restarts.append(time.monotonic())
        super().launch()


class ServerNode(TimedNode):
    """nginx or HAProxy: a master process with workers."""

    def __init__(self, plane: Plane, command: Sequence[str], folder: Path, *, port: int) -> None:
        super().__init__("server", command, folder, port=port, announces=False)
        self.reloads: list[float] = []
        """Monotonic seconds."""
        self._plane = plane

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the master process and its workers with a signal, and wait until none of them is left."""
        workers = psutil.Process(self.pid).children(recursive=True)
        super().kill(number)  # first, because it would replace its workers
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(number)
        _, running = psutil.wait_procs(workers, programs.PATIENCE)
        assert running == []

    def reload(self) -> None:
        """Have it read its configuration again, and wait until its old workers have ended."""
        before = set(self.children())
        self.reloads.append(time.monotonic())
        os.kill(self.pid, signal.SIGHUP if self._plane.program == "nginx" else signal.SIGUSR2)
        until(lambda: self.children() and not before & set(self.children()), self.said)

    def kill_worker(self) -> None:
        """Kill a worker, and wait until another one runs."""
        before = self.children()
        os.kill(before[0], signal.SIGKILL)
        until(lambda: before[0] not in self.children() and len(self.children()) >= len(before), self.said)


class PlaneSystem:
    """Running nodes by name: `master`, `sidecar`, `server`."""

    def __init__(
        self, plane: Plane, folder: Path, nodes: dict[str, Node], server: ServerNode, sidecar: TimedNode
    ) -> None:
        self.plane = plane
        self.folder = folder
        self.nodes = nodes
        self.server = server
        self.sidecar = sidecar
        self._clients = 0

    def node(self, name: str) -> Node:
        """Return a node."""
        return self.nodes[name]

    def get(self, client: str) -> int:
        """Return the status of a request on a connection of its own."""
        return programs.request(self.server.port, X_Client=client).status

    def is_limited(self) -> bool:
        """Return whether a request of a new identifier soon has its second one rejected."""
        self._clients += 1
        client = f"limited{self._clients}"
        assert self.get(client) == ACCEPTED
        deadline = time.monotonic() + _HOLD_PATIENCE
        while time.monotonic() < deadline:
            if self.get(client) == REJECTED:
                return True
            time.sleep(0.01)
        return False

    def wait_until_limited(self) -> None:
        """Wait until accounting has an effect."""
        until(self.is_limited, self.describe)

    def hold(self, clients: Sequence[str]) -> None:
        """Give each identifier a hold, and wait until all of them are in force."""
        for client in clients:
            self.get(client)
        for client in clients:
            until(lambda: self.get(client) == REJECTED, self.describe)  # noqa: B023 - called at once

    def wait_until_held(self, count: int) -> None:
        """Wait until HAProxy's table has the holds of so many of the identifiers `held…`, without a request of them."""

        def are_held() -> bool:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(programs.PATIENCE)
                connection.connect(str(self.folder / self.plane.socket))
                connection.sendall(b"show table headgate\n")
                found = b"".join(iter(lambda: connection.recv(65_536), b""))
            return len(set(re.findall(rb"held\d+", found))) >= count

        until(are_held, self.describe, pause=0.05)

    @property
    def emptied(self) -> list[float]:
        """When the table of holds was emptied of what rejects requests, in monotonic seconds."""
        if self.plane.sidecar_decides:
            return self.sidecar.restarts
        return [*self.server.restarts, *(self.server.reloads if self.plane.reload_empties else ())]

    @property
    def socket(self) -> str:
        """The path of the unix socket at which the sidecar listens."""
        return str(self.folder / self.plane.socket) + (".accounting" if self.plane.name == "haproxy" else "")

    def describe(self) -> str:
        """Return what the nodes have said, for a failing test."""
        return "\n".join(f"{name}: {node.said()}" for name, node in self.nodes.items())


def print_configuration(plane: Plane, folder: Path, port: int, origin: str, settings: Path) -> str:
    """Return the configuration that `headgate sidecar --print-conf` writes for the server."""
    words = ("--listen", f"127.0.0.1:{port}", "--origin", origin, "--domain", DOMAIN, "--identify", "header:x-client")
    socket = folder / plane.socket
    done = programs.command("sidecar", "--print-conf", plane.name, *words, "--config", settings, "--socket", socket)
    assert done.code == 0, done.err
    return done.out


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """Create a folder with a short path that the workers of nginx, who are another user, may enter."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def running_plane(plane: Plane, *, rule: str = RULE) -> Iterator[PlaneSystem]:
    """Run a data plane with all its parts; its requests are limited by the time the block begins."""
    with ExitStack() as running:
        folder = running.enter_context(reachable_folder())
        origin = running.enter_context(servers.nginx(folder, server=ORIGIN, http=ORIGIN_HTTP))
        settings, port = folder / "headgate.toml", servers.free_port()
        settings.write_text(SETTINGS.format(rule=rule))
        master = port_pair()
        command = headgate_command("master", "--config", settings, "--listen", f"127.0.0.1:{master}")
        words = ("--master", f"127.0.0.1:{master}", "--domain", DOMAIN, f"--{plane.name}", folder / plane.socket)
        sidecar = TimedNode("sidecar", headgate_command("sidecar", "--config", settings, *words), folder, port=0)
        configuration = folder / f"{plane.program}.conf"
        text = print_configuration(plane, folder, port, origin.url, settings)
        configuration.write_text(text.replace("worker_processes auto;", "worker_processes 2;"))
        server = ServerNode(plane, plane.server_command(folder, configuration), folder, port=port)
        nodes = [Node("master", command, folder, port=master), sidecar, server]
        for node in nodes:
            running.callback(node.close)
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        system = PlaneSystem(plane, folder, {node.name: node for node in nodes}, server, sidecar)
        system.wait_until_limited()
        yield system
