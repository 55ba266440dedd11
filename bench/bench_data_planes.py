"""nginx as a gatekeeper, with Lua and without: processor time per request, against nginx without limits.

The two configurations differ only in the lines that `headgate sidecar --print-conf` marks. The processor time is that
of the server's workers and of the sidecar, divided by the requests; the master, which serves many gatekeepers, is not
part of it. wrk sends heads such as browsers do, all different, over 32 kept connections, with 20,000 identifiers; one
request in 50 is of an identifier that is held, and is rejected. Afterwards the origin and the master must have counted
every request.
"""

import asyncio
import http.client
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench.bench_gateway import BODY, LASTING, ORIGIN, received
from bench.browser_load import CONNECTIONS, Result, load, write_script
from bench.measure import Absent, Row, verify
from headgate.limit import DelayUntil, Domain, Master, Rule
from headgate.link import MasterLink
from tests import servers
from tests.e2e.fault_node import Node
from tests.e2e.fault_system import port_pair
from tests.e2e.plane_system import (
    DOMAIN,
    PLANES,
    Plane,
    ServerNode,
    print_configuration,
    reachable_folder,
    sidecar_command,
    with_workers,
)

SECONDS: Final = 2
HELD: Final = 1_000
"""Identifiers that are held."""
CLIENTS: Final = 20_000
HELD_SHARE: Final = 50
"""One request in so many is of a held identifier."""
FIELDS: Final = (
    f'"X-Client: " .. (number % {HELD_SHARE} == 0 and "held" .. number / {HELD_SHARE} % {HELD} '
    f'or "client" .. number % {CLIENTS}) .. "\\r\\n"'
)
TARGETS: Final = {"nginx-lua": 1.6, "auth-request": 3.0}
PATIENCE: Final = 20.0
REJECTED: Final = 429
HOLD: Final = 3_600.0
SETTINGS: Final = """\
[sidecar]
identify = "header:x-client"
max_delay = 0
rejection_status = 429
"""
_MARKED = re.compile(r"(?ms)^[^\n]*# headgate: begin.*?# headgate: end[^\n]*\n")


class LocalMaster:
    """A master in a thread of this process, which the sidecars connect to."""

    def __init__(self) -> None:
        self.port = port_pair()
        self.master = Master([Domain(DOMAIN, (Rule.parse("1000000/s burst 1000000"),))])
        self._link = MasterLink(self.master, f"tcp://127.0.0.1:{self.port}")
        self._loop = asyncio.new_event_loop()
        self._loop.call_soon(self._link.start, self._loop)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def publish(self, identifiers: Iterable[str], seconds: float) -> None:
        """Have every gatekeeper hold identifiers; returns once the controls are sent."""
        release = time.time() + seconds
        sent = threading.Event()
        controls = [DelayUntil(DOMAIN, identifier.encode(), release) for identifier in identifiers]

        def publish() -> None:
            for control in controls:
                self._link.publish(control)
            sent.set()

        self._loop.call_soon_threadsafe(publish)
        sent.wait(PATIENCE)

    def counted(self) -> tuple[int, int]:
        """Return how many requests were accepted and rejected."""
        totals = self.master.totals[DOMAIN]
        return totals.accepted, totals.rejected

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._link.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True)
class Side:
    """A server with its sidecar, if it has one."""

    port: int
    server: ServerNode
    sidecar: Node | None = None
    master: LocalMaster | None = None


def cpu(pids: list[int]) -> float:
    """Return the processor time of all threads of processes, in seconds."""
    files = (file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


@contextmanager
def plain_server(plane: Plane, folder: Path, origin: str) -> Iterator[Side]:
    """Run the server without the lines that make it a gatekeeper."""
    folder.mkdir()
    folder.chmod(0o755)
    with _running_server(plane, folder, origin, plain=True) as server:
        yield Side(server.port, server)


@contextmanager
def limited_server(plane: Plane, folder: Path, origin: str) -> Iterator[Side]:
    """Run the server as a gatekeeper, with a sidecar and a master; `HELD` identifiers are held."""
    folder.mkdir()
    folder.chmod(0o755)
    with ExitStack() as running:
        master = LocalMaster()
        running.callback(master.close)
        settings = folder / "headgate.toml"
        settings.write_text(SETTINGS)
        sidecar = Node(
            "sidecar", sidecar_command(plane, folder, settings, "--master", f"127.0.0.1:{master.port}"), folder, port=0
        )
        running.callback(sidecar.close)
        sidecar.launch()
        server = running.enter_context(_running_server(plane, folder, origin, plain=False))
        sidecar.wait_until_ready()
        side = Side(server.port, server, sidecar, master)
        _hold(side, [f"held{number}" for number in range(HELD)])
        yield side


@contextmanager
def _running_server(plane: Plane, folder: Path, origin: str, *, plain: bool) -> Iterator[ServerNode]:
    settings = folder / "headgate.toml"
    settings.write_text(SETTINGS)
    port = servers.free_port()
    text = with_workers(plane, print_configuration(plane, folder, port, origin, settings), 1)
    if plain:
        text = re.sub(r"#.*", "", _MARKED.sub("", text))
        verify("nothing limits without the marked lines", right=not re.search(r"lua|auth_request|map_str", text))
    configuration = folder / f"{plane.program}.conf"
    configuration.write_text(text)
    server = ServerNode(plane, plane.server_command(folder, configuration), folder, port=port)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _hold(side: Side, identifiers: list[str]) -> None:
    """Publish holds until the server rejects the first and the last of them."""
    assert side.master is not None
    deadline = time.monotonic() + PATIENCE
    while any(ask(side.port, identifier)[0] != REJECTED for identifier in (identifiers[0], identifiers[-1])):
        verify("the published holds are in force", right=time.monotonic() < deadline)
        side.master.publish(identifiers, HOLD)
        time.sleep(0.2)


def ask(port: int, identifier: str) -> tuple[int, bytes, str]:
    """Send a request; return status, body and Retry-After."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/", headers={"X-Client": identifier})
        response = connection.getresponse()
        return response.status, response.read(), response.getheader("Retry-After", "")
    finally:
        connection.close()


class Cost(NamedTuple):
    """Microseconds of processor time for one request."""

    server: float
    sidecar: float

    @property
    def total(self) -> float:
        """That of both."""
        return self.server + self.sidecar


def cost(side: Side, origin: int, script: Path) -> Cost:
    """Return what one request costs, over some seconds of requests."""
    verify("the origin's body arrives", right=ask(side.port, "client")[:2] == (200, BODY.encode()))
    if side.sidecar is not None:
        status, _, retry_after = ask(side.port, "held1")
        verify("a held identifier is rejected, with Retry-After", right=(status, retry_after.isdigit()) == (429, True))
    servers_pids, sidecars_pids = side.server.children(), [side.sidecar.pid] if side.sidecar is not None else []
    counts, arrived = settled(side), received(origin)
    before = cpu(servers_pids), cpu(sidecars_pids)
    result = load(side.port, script, seconds=SECONDS)
    after_counts = settled(side)
    spent = [cpu(pids) - earlier for pids, earlier in zip((servers_pids, sidecars_pids), before, strict=True)]
    check(
        side,
        result,
        received(origin) - arrived - 1,
        [now - then for now, then in zip(after_counts, counts, strict=True)],
    )
    return Cost(*(seconds / result.requests * 1e6 for seconds in spent))


def settled(side: Side) -> tuple[int, int]:
    """Wait until the requests that wrk left behind are counted; return what the master has counted."""
    before, pids = None, side.server.children()
    for _ in range(100):
        now = (cpu(pids), side.master.counted() if side.master is not None else (0, 0))
        if now == before:
            break
        before = now
        time.sleep(0.1)
    return now[1]


def check(side: Side, result: Result, arrived: int, counted: list[int]) -> None:
    """Verify that the origin and the master have counted the requests of a run, and that few were rejected."""
    if side.master is None:
        verify("the server without limits rejects nothing", right=result.refused == 0)
        return
    accepted, rejected = counted
    # wrk closes its connections at the end, and does not count the requests that are then under way: some are accepted,
    # but not forwarded.
    extra = accepted - arrived
    verify(f"the master has counted what the origin received: {extra} more", right=0 <= extra <= CONNECTIONS)
    over = accepted + rejected - result.requests
    verify(f"the master has counted every request: {over} more", right=0 <= over <= CONNECTIONS)
    expected = result.requests / HELD_SHARE
    verify(f"the held are rejected: {rejected}, {expected:.0f}", right=abs(rejected - expected) <= CONNECTIONS + 1)


def run(rounds: int) -> list[Row]:
    """Measure nginx."""
    if servers.find_program("wrk") is None:
        raise Absent("wrk is not installed")
    with ExitStack() as running:
        folder = running.enter_context(reachable_folder())
        (folder / "origin").mkdir()
        directives = ORIGIN.format(body=BODY.replace("\n", "\\n"))
        origin = running.enter_context(servers.nginx(folder / "origin", server=directives, http=LASTING))
        script = write_script(folder / "load.lua", more=FIELDS)
        return _costs("nginx", folder, origin.port, script, rounds)


def _costs(program: str, folder: Path, origin: int, script: Path, rounds: int) -> list[Row]:
    """Measure the data planes of one program and the program without limits in turns, each first in some rounds."""
    planes = [plane for plane in PLANES.values() if plane.program == program and servers.is_present(plane.needed)]
    url = f"http://127.0.0.1:{origin}"
    with ExitStack() as running:
        sides = {"plain": running.enter_context(plain_server(planes[0], folder / f"plain-{program}", url))}
        for plane in planes:
            sides[plane.name] = running.enter_context(limited_server(plane, folder / plane.name, url))
        names = list(sides)
        figures: dict[str, list[Cost]] = {name: [] for name in names}
        for turn in range(rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                figures[name].append(cost(sides[name], origin, script))
    return [_cost_row(name, program, figures[name], figures["plain"]) for name in names[1:]]


def _cost_row(name: str, program: str, ours: list[Cost], peer: list[Cost]) -> Row:
    """Compare a data plane, its sidecar included, with the server without limits."""
    ratio = median(mine.total / theirs.server for mine, theirs in zip(ours, peer, strict=True))
    alone = median(mine.server / theirs.server for mine, theirs in zip(ours, peer, strict=True))
    context = (
        f"{median(mine.server for mine in ours):.1f} + sidecar {median(mine.sidecar for mine in ours):.1f} µs against "
        f"{median(theirs.server for theirs in peer):.1f} µs; {alone:.2f} without the sidecar"
    )
    return Row(f"{name}, CPU per request", f"plain {program}", ratio, "≤", TARGETS[name], context)
