"""Gates, masters and what they need, each a process that a fault test may stop, kill and start again on its address.

Every gate and master reads one configuration file. Its domains: `default`, for the load; `probe`, one request an hour,
for the probes of the load; `burst`, `BURST` requests an hour, for `System.check_limits`.
"""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from headgate.limit import Domain, Rule
from headgate.link import endpoints
from headgate.link.master_connection import Sharding, sharding_item
from tests import servers
from tests.e2e.fault_node import GateNode, Node, until
from tests.e2e.programs import PATIENCE
from tests.forked import PROGRAM

BURST = 5
RULE = "2/s burst 4"
DOMAIN = Domain("default", (Rule.parse(RULE),))
"""The domain of the load."""
_HOLD_PATIENCE = 1.0
"""Seconds in which the hold of a full burst should reach every gate; then another burst is tried."""

ORIGIN = 'default_type text/plain; location / { return 200 "ok\\n"; }'
ORIGIN_HTTP = "keepalive_requests 1000000000; keepalive_timeout 300;"

SETTINGS = """\
[gate]
origin = "{origin}"
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
identify = "header:x-client"
max_delay = 0
rejection_status = 429
workers = {workers}
drain = 1
{gate}
[gate.bounds]
client_connections = 0
[master]
{master}
[[domain]]
name = "probe"
path_prefix = "/probe"
rules = ["1/h burst 1"]
[[domain]]
name = "burst"
path_prefix = "/burst"
rules = ["{burst}/h"]
[[domain]]
name = "default"
rules = ["{rule}"]
"""


@dataclass(frozen=True)
class Shape:
    """What a system consists of."""

    gates: int = 2
    masters: int = 1
    """0: each gate has its own, and shares with the others only what is in the store."""
    workers: int = 1
    """Processes of each gate."""
    routers: int = 0
    """Routers between gates and masters."""
    store: Literal["", "redis", "cluster"] = ""
    """What the masters share: a Redis server, or a cluster of three with a replica each."""


class System:
    """Running nodes by name: `gate0`, `master0`, `router0`, `redis` …."""

    def __init__(self, shape: Shape, nodes: dict[str, Node]) -> None:
        self.shape = shape
        self.nodes = nodes
        self._bursts = 0

    @property
    def gates(self) -> list[GateNode]:
        """The gates."""
        return [node for node in self.nodes.values() if isinstance(node, GateNode)]

    def node(self, name: str) -> Node:
        """Return a node; `master` and `router` are those that the domain of the load belongs to."""
        return self.nodes.get(name) or self._owner([node for each, node in self.nodes.items() if each.startswith(name)])

    def _owner(self, nodes: Sequence[Node]) -> Node:
        by_address = {endpoints(f"127.0.0.1:{node.port}").accounting: node for node in nodes}
        address = Sharding(by_address).owner(sharding_item("default"), by_address)
        assert address is not None
        return by_address[address]

    def _new_client(self) -> str:
        self._bursts += 1
        return f"burst{self._bursts}"

    def is_limited_from(self, gate: GateNode) -> bool:
        """Return whether a full burst at one gate soon holds its identifier at every gate."""
        client = self._new_client()
        if [gate.get("/burst", client) for _ in range(BURST)] != [200] * BURST:
            return False
        if not self.shape.masters:  # a master learns a hold when it sends a record of the identifier
            for other in self.gates:
                other.get("/burst", client)
        deadline = time.monotonic() + _HOLD_PATIENCE
        while time.monotonic() < deadline:
            if all(each.holds("burst", client) for each in self.gates):
                return True
            time.sleep(0.01)
        return False

    def wait_until_limited(self) -> None:
        """Wait until accounting from each gate has an effect at every gate."""
        for gate in self.gates:
            until(partial(self.is_limited_from, gate), self.describe)

    def check_limits(self) -> None:
        """Wait for limits; then assert that a burst spread over all gates is admitted exactly, and no request more.

        Without a common master there is nothing exact: each one learns from the store with its own next request.
        """
        self.wait_until_limited()
        if not self.shape.masters:
            return
        gates = self.gates
        for is_last in (False, True):
            client = self._new_client()
            statuses = [gates[number % len(gates)].get("/burst", client) for number in range(BURST)]
            assert statuses == [200] * BURST
            deadline = time.monotonic() + PATIENCE / 2
            while not (is_held := all(gate.holds("burst", client) for gate in gates)) and time.monotonic() < deadline:
                time.sleep(0.01)
            if is_held:
                break
            # A master that comes back within the burst takes its domain over: each of two has accounted a part.
            assert not is_last, f"no hold after two bursts: {self.describe()}"
        assert [gate.get("/burst", client) for gate in gates] == [429] * len(gates)

    def describe(self) -> str:
        """Return what the nodes have said, for a failing test."""
        return "\n".join(f"{name}: {node.said()}" for name, node in self.nodes.items())


def port_pair() -> int:
    """Return a free port whose successor is free too: the second port of a master is the next one."""
    while True:
        port = servers.free_port()
        with socket.socket() as following, suppress(OSError):
            following.bind(("127.0.0.1", port + 1))
            return port


def headgate_command(*arguments: object) -> list[str]:
    """Return the command that runs `headgate`."""
    return [*PROGRAM, *map(str, arguments)]


def master_nodes(folder: Path, settings: Path, shape: Shape) -> Iterator[Node]:
    """Yield masters that have not started."""
    for number in range(shape.masters):
        port = port_pair()
        command = headgate_command("master", "--config", settings, "--listen", f"127.0.0.1:{port}")
        yield Node(f"master{number}", command, folder, port=port)


def router_nodes(folder: Path, masters: Sequence[int], count: int) -> Iterator[Node]:
    """Yield routers to the ports of `masters` that have not started."""
    for number in range(count):
        port = port_pair()
        words = [word for master in masters for word in ("--master", f"127.0.0.1:{master}")]
        yield Node(
            f"router{number}", headgate_command("router", "--listen", f"127.0.0.1:{port}", *words), folder, port=port
        )


def store_nodes(folder: Path, shape: Shape, running: ExitStack) -> Iterator[Node]:
    """Yield the nodes of the store: a Redis server that has not started, or those of a cluster that runs."""
    if shape.store == "redis":
        yield redis_node(folder)
    elif shape.store == "cluster":
        (folder / "cluster").mkdir()
        for number, server in enumerate(running.enter_context(servers.redis_cluster(folder / "cluster", replicas=1))):
            yield Node(f"redis{number}", [], folder, port=server.port, announces=False, process=server.process)


def redis_node(folder: Path) -> Node:
    """Return a Redis server that has not started, and that writes nothing to disk."""
    port = servers.free_port()
    program = servers.find_program("redis-server") or "redis-server"
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    return Node("redis", [program, *options], folder, port=port, announces=False)


def gate_nodes(folder: Path, settings: Path, count: int) -> Iterator[Node]:
    """Yield gates that have not started."""
    for number in range(count):
        port = servers.free_port()
        command = headgate_command("serve", "--config", settings, "--listen", f"127.0.0.1:{port}")
        yield GateNode(f"gate{number}", command, folder, port=port)


def write_settings(file: Path, shape: Shape, *, origin: str, masters: Sequence[int], stores: Sequence[int]) -> None:
    """Write the configuration of all nodes; `masters` are the ports that gates connect to, `stores` those of Redis."""
    scheme = "redis+cluster" if shape.store == "cluster" else "redis"
    store = f"{scheme}://{','.join(f'127.0.0.1:{port}' for port in stores)}"
    addresses = [f"tcp://127.0.0.1:{port}" for port in masters]
    keys = {
        "origin": origin,
        "workers": shape.workers,
        "gate": f"master = {json.dumps(addresses or 'embedded')}",
        "master": "\n".join(["insecure = true", *([f'store = "{store}"'] if stores else [])]),
        "burst": BURST,
        "rule": RULE,
    }
    file.write_text(SETTINGS.format(**keys))


@contextmanager
def running_system(folder: Path, shape: Shape | None = None) -> Iterator[System]:
    """Run a system with an origin; every gate is limited by the time the block begins."""
    shape = shape or Shape()
    with ExitStack() as running:
        origin = running.enter_context(servers.nginx(folder, server=ORIGIN, http=ORIGIN_HTTP))
        settings = folder / "headgate.toml"
        stores = list(store_nodes(folder, shape, running))
        masters = list(master_nodes(folder, settings, shape))
        routers = list(router_nodes(folder, [node.port for node in masters], shape.routers))
        ports = [node.port for node in routers or masters]
        write_settings(settings, shape, origin=origin.url, masters=ports, stores=[node.port for node in stores])
        nodes = [*stores, *masters, *routers, *gate_nodes(folder, settings, shape.gates)]
        for node in nodes:
            running.callback(node.close)
            if not node.is_running:
                node.launch()
        for node in nodes:
            node.wait_until_ready()
        system = System(shape, {node.name: node for node in nodes})
        system.wait_until_limited()
        yield system
