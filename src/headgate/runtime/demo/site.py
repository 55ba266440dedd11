"""The site of the demonstration and everything around it: origin, gate, prefetch proxies and clients as processes."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.config import Address
from headgate.errors import DemoError, FetchError
from headgate.runtime.demo.agents import CRAWLER_BRAND, PREFETCH_FIELD, USER_AGENTS
from headgate.runtime.demo.children import Children, Program, Role, Worker
from headgate.runtime.demo.connections import Connection, Target, request_head
from headgate.runtime.demo.load import FromLoad, LoadConfiguration, LoadState
from headgate.runtime.demo.measure import Tally
from headgate.runtime.demo.origin import FromOrigin, OriginConfiguration
from headgate.runtime.demo.plan import Kind, Load, Phase, Plan
from headgate.runtime.listen import reserve_addresses
from headgate.runtime.prefetch_proxy_process import self_signed

_HOST: Final = "news.example.com"
"""The name of the site: in the URLs of tunnels, and in the certificate."""
_PROXIES: Final = 2
_CONFIGURE_TIMEOUT: Final = 10.0
_QUERY_TIMEOUT: Final = 2.0
_HERE: Final = Address("127.0.0.1", 0)


@asynccontextmanager
async def running_site(plan: Plan) -> AsyncIterator["Site"]:
    """Start origin, gate, prefetch proxies and clients; at the end of the block, nothing of it is left.

    If this process is killed by SIGKILL, all others end, but temporary files stay: the configuration of the gate, and
    the key of a certificate that only these clients trusted. Raises `DemoError` if a process cannot start.
    """
    with (
        self_signed(_HOST) as (certificate, key),
        tempfile.TemporaryDirectory(prefix="headgate-") as folder,
        reserve_addresses("", _HERE) as [plain],
        reserve_addresses("", _HERE) as [encrypted],
    ):
        file = Path(folder) / "headgate.toml"
        file.write_text(gate_configuration(plan, origin=plain, certificate=certificate, key=key))
        async with Children() as children:
            gate = await children.program("the gate", "serve", "--config", str(file))
            origin = OriginConfiguration(plain, encrypted, certificate, key, plan.workers, plan.service_time)
            site = Site(plan, children, gate, origin)
            await site.start_origin()
            await gate.ready()
            await site.start_clients()
            yield site


class Site:
    """A gate that runs, its origin, and the prefetch proxies and clients that send it requests."""

    def __init__(self, plan: Plan, children: Children, gate: Program, origin: OriginConfiguration) -> None:
        self._plan = plan
        self._children = children
        self._gate = gate
        self._origin_configuration = origin
        self._origin: Worker[None] | None = None
        self._proxies: list[Program] = []
        self._loads: dict[Kind, Worker[LoadState]] = {}
        self._number = 0

    async def start_clients(self) -> None:
        """Start the prefetch proxies and the clients, which send nothing yet; return when all of them are ready."""
        self._proxies = [await self._start_proxy() for _ in range(_PROXIES)]
        for proxy in self._proxies:
            await proxy.ready()
        for index, (kind, clients) in enumerate(self._plan.clients):
            configuration = self._load(kind, clients, index, rate=0.0, has_gate=True)
            role = Role("headgate.runtime.demo.load", FromLoad, LoadState(), configuration)
            self._loads[kind] = await self._children.worker(f"the process of {kind}", role)
        for worker in self._loads.values():
            await worker.ready()

    async def start_origin(self) -> None:
        """Start the origin, if it does not run; return when it listens."""
        if self._origin is not None:
            return
        role = Role("headgate.runtime.demo.origin", FromOrigin, None, self._origin_configuration)
        self._origin = await self._children.worker("the origin", role)
        await self._origin.ready()

    async def kill_origin(self) -> None:
        """Kill the process of the origin."""
        if self._origin is not None:
            origin, self._origin = self._origin, None
            await self._children.kill(origin)

    async def direct(self, load: Load, phase: Phase) -> None:
        """Have the clients send this load; return when they do. If the target changes, they leave the former one."""
        self._number += 1
        for index, (kind, clients) in enumerate(self._plan.clients):
            rate = load.get(kind, 0.0) * self._plan.capacity
            self._loads[kind].configure(self._load(kind, clients, index, rate=rate, has_gate=phase.has_gate))
        try:
            async with asyncio.timeout(_CONFIGURE_TIMEOUT):
                while any([(await worker.state()).number != self._number for worker in self._loads.values()]):
                    await asyncio.sleep(0.01)
                    self._children.check()
        except TimeoutError:
            raise DemoError(
                f"the clients did not change their load within {_CONFIGURE_TIMEOUT:g} s; this machine is too busy"
            ) from None

    async def tallies(self) -> dict[Kind, Tally]:
        """Return what each kind of clients has counted; raises `DemoError` if a process has ended."""
        self._children.check()
        states = await asyncio.gather(*(worker.state() for worker in self._loads.values()))
        return dict(zip(self._loads, (state.tally for state in states), strict=True))

    async def gate_state(self) -> dict[str, Any]:
        """Return the state of the gate as JSON; empty if it does not answer in time."""
        target = Target(self._gate.admin, "127.0.0.1", tls=False)
        try:
            async with asyncio.timeout(_QUERY_TIMEOUT):
                connection = await Connection.open(target.port, "127.0.0.1")
                try:
                    response = await connection.exchange(request_head(target, "/api/state", "Connection: close\r\n"))
                finally:
                    connection.close()
            state = msgspec.json.decode(response.body, type=dict[str, Any])
        except (FetchError, OSError, msgspec.DecodeError):
            return {}
        return state

    async def _start_proxy(self) -> Program:
        origin = self._origin_configuration
        ports = [word for port in (self._gate.port, origin.encrypted.port) for word in ("--allow-port", str(port))]
        return await self._children.program(
            "a prefetch proxy",
            "proxy",
            *("--listen", "127.0.0.1:0", "--plaintext", "--resolve", "*=127.0.0.1", "--allow-address", "127.0.0.0/8"),
            *("--advice-ca", origin.certificate, "--min-freshness", str(self._plan.max_age), "--drain", "0"),
            *("--unreachable-hold", "1", "--client-rate", "off", *ports),
        )

    def _load(self, kind: Kind, clients: int, seed: int, *, rate: float, has_gate: bool) -> LoadConfiguration:
        if has_gate:
            target = Target(self._gate.port, _HOST, tls=True)
        elif kind == "prefetch":
            target = Target(self._origin_configuration.encrypted.port, _HOST, tls=True)
        else:
            target = Target(self._origin_configuration.plain.port, _HOST, tls=False)
        return LoadConfiguration(
            number=self._number,
            kind=kind,
            clients=clients,
            rate=rate,
            target=target,
            proxies=tuple(proxy.port for proxy in self._proxies),
            certificate=self._origin_configuration.certificate,
            deadline=self._plan.deadline,
            min_freshness=self._plan.max_age,
            seed=seed,
        )


def gate_configuration(plan: Plan, *, origin: Address, certificate: str, key: str) -> str:
    """Return the configuration file of the gate."""
    return f"""\
[gate]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
origin = "http://{origin}"
drain = 1
timeouts = {{ connect = 1, response = 5 }}
tls = {{ cert = {json.dumps(certificate)}, key = {json.dumps(key)} }}

[limit.concurrency]
max = {json.dumps(plan.max_in_flight)}
queue = {plan.queue}

[[domain]]
name = "prefetch"
header = "{PREFETCH_FIELD[0]}"
priority = "prefetch"

[[domain]]
name = "agents"
header = "User-Agent"
value = "{USER_AGENTS["agents"]}"
priority = "verified"

[[domain]]
name = "crawlers"
header = "User-Agent"
value = "{USER_AGENTS["crawlers"]}"
priority = "automated"

[[domain]]
name = "people"

[advice]
mode = "adaptive"
capacity = "{plan.capacity:.0f}/s"
max_age = {plan.max_age}

[[advice.entry]]
user_agent = "prefetch-proxy"
fraction = "auto"

[[advice.entry]]
user_agent = "{CRAWLER_BRAND}"
fraction = "auto"
domains = ["crawlers"]

[[advice.entry]]
user_agent = "*"
fraction = "auto"
"""
