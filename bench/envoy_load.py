"""Envoy with the quota service of a master: processor time per request, against the same Envoy without it.

The two configurations differ only in the lines that `headgate sidecar --print-conf envoy` marks. wrk sends heads such
as browsers do, all different, over 32 kept connections, with a thousand identifiers; the rule permits all of them. The
master must have counted every request once the last reports have arrived.
"""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from bench.browser_load import load, write_script
from bench.measure import Row, verify
from headgate.config import Address
from headgate.origin.sidecar.envoy_conf import configuration
from headgate.origin.sidecar.site import Site
from tests import servers
from tests.e2e.envoy_setup import DOMAIN, EnvoyNode, envoy_node
from tests.e2e.fault_node import Node
from tests.e2e.fault_system import headgate_command, port_pair

SECONDS: Final = 1
TURNS_A_ROUND: Final = 3
CLIENTS: Final = 1_000
FIELDS: Final = f'"X-Client: client" .. (number % {CLIENTS}) .. "\\r\\n"'
TARGET: Final = 1.1
REPORT_PATIENCE: Final = 15.0
"""Seconds; Envoy reports every five seconds."""
MARKED: Final = re.compile(r"(?ms)^[^\n]*# headgate: begin.*?# headgate: end[^\n]*\n")
PERMITTING_ALL: Final = "1000000/s burst 1000000"


@dataclass
class Side:
    """An Envoy, and what its requests have cost."""

    name: str
    envoy: EnvoyNode
    costs: list[float] = field(default_factory=list)
    """Microseconds of processor time for a request, of each round."""
    requests: int = 0
    """All requests sent to it."""

    def measure(self, script: Path) -> None:
        """Send requests for some seconds."""
        before = processor_time(self.envoy.pid)
        result = load(self.envoy.port, script, seconds=SECONDS)
        self.costs.append((processor_time(self.envoy.pid) - before) / result.requests * 1e6)
        self.requests += result.requests
        verify(f"Envoy admits every request ({self.name})", right=result.refused == 0)


def processor_time(pid: int) -> float:
    """Return the processor time of a process, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextmanager
def sides(folder: Path, origin: str) -> Iterator[tuple[list[Side], Callable[[], int]]]:
    """Run three Envoys: without headgate, by address, and by header; also yield what counts requests at the master."""
    quota, bus, admin = servers.free_port(), port_pair(), servers.free_port()
    options = ["--listen", f"127.0.0.1:{bus}", "--rlqs", f"127.0.0.1:{quota}", "--admin", f"127.0.0.1:{admin}"]
    command = headgate_command("master", *options, "--domain", f"{DOMAIN}={PERMITTING_ALL}")
    nodes: list[Node] = [Node("master", command, folder, port=bus)]
    found = []
    for name, identify in (("plain", None), ("address", "client-address"), ("header", "header:x-client")):
        listen = Address("127.0.0.1", servers.free_port())
        site = Site(listen=listen, origin=origin, domain=DOMAIN, identify=identify, rlqs=Address("127.0.0.1", quota))
        text = configuration(site)
        if name == "plain":
            text = MARKED.sub("", text)
            verify("the plain Envoy has no filter of headgate", right="rate_limit_quota" not in text)
        envoy = envoy_node(folder, name, text, listen)
        nodes.append(envoy)
        found.append(Side(name, envoy))
    try:
        for node in nodes:
            node.start()
        yield found, lambda: _accepted(admin)
    finally:
        for node in nodes:
            node.close()


def _accepted(admin: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/state", timeout=10.0) as response:
        (domain,) = json.loads(response.read())["domains"]
    return int(domain["accepted"])


def rows(folder: Path, origin: str, rounds: int) -> list[Row]:
    """Measure Envoys before the origin at the URL, in turns, each first in some rounds."""
    script = write_script(folder / "envoy.lua", more=FIELDS)
    with sides(folder, origin) as (found, accepted):
        for side in found:
            side.measure(script)  # connections are made, and buckets are created
            side.costs.clear()
        for turn in range(rounds * TURNS_A_ROUND):
            first = turn % len(found)
            for side in found[first:] + found[:first]:
                side.measure(script)
        _verify_reports(found, accepted)
    plain, *limited = found
    return [_row(side, plain.costs) for side in limited]


def _verify_reports(found: Sequence[Side], accepted: Callable[[], int]) -> None:
    """Verify that the master has counted every request of the limited Envoys."""
    sent = sum(side.requests for side in found if side.name != "plain")
    deadline = time.monotonic() + REPORT_PATIENCE
    while (counted := accepted()) < sent and time.monotonic() < deadline:
        time.sleep(0.5)
    # wrk does not count the requests under way when it ends.
    verify(f"the master has counted {sent} requests: {counted}", right=sent <= counted <= 1.01 * sent)


def _row(side: Side, peer: Sequence[float]) -> Row:
    ratio = median(ours / theirs for ours, theirs in zip(side.costs, peer, strict=True))
    context = f"{median(side.costs):.1f} µs against {median(peer):.1f} µs"
    return Row(f"envoy, clients by {side.name}, CPU per request", "plain envoy", ratio, "≤", TARGET, context)
