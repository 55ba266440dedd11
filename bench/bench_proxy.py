"""The prefetch proxy's tunnels inside TLS, over HTTP/1.1 and HTTP/2, compared with nghttpx in front of squid.

Ours is the whole command with one worker, which decides on every CONNECT: the target's advice (there is none) is cached
after the first. Clients and targets are separate processes, the same for both sides; nghttpx has windows as large as
ours. Each round checks its own results: the hash of a smaller transfer, the six bytes that come back, the protocol that
was negotiated.

New tunnels are measured in CPU time, which other programs on the machine disturb less than wall time. Memory is
measured with new processes: those that were used before reuse freed memory, and seem to need less.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import psutil
import trustme

from bench.bulk_target import LONGEST_HASHED, digest
from bench.measure import Absent, Comparison, Row, compare, verify
from tests import servers

PROTOCOLS = ("http/1.1", "h2")
PEER = "nghttpx before squid"
BYTES = 1 << 29
TUNNELS = 1_000
ECHOES = 5_000
IDLE = 2_000
FIRST = 200
"""Tunnels opened before memory is measured, so that one-time allocations do not count."""
MANY = 1_000_000
WINDOW = 1 << 20


class Side:
    """One proxy, of one process or several; clients connect to the first."""

    def __init__(self, *running: servers.Server) -> None:
        self.port = running[0].port
        self.costs: list[float] = []
        """CPU seconds per unit of each measurement, or another second figure of it."""
        self._processes = [psutil.Process(server.process.pid) for server in running]

    def cpu(self) -> float:
        """Return the CPU time used so far, in seconds."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        return sum(process.memory_info().rss for process in self._processes)


def run(rounds: int) -> list[Row]:
    """Measure everything."""
    for name in ("nghttpx", "squid"):
        if servers.find_program(name) is None:
            raise Absent(f"{name} is not installed")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        cert, key = keys(folder)
        bulk, echo = (running.enter_context(program(name, folder)).port for name in ("bulk_target", "echo_target"))
        ours, peer = running.enter_context(both_sides(folder / "all", [bulk, echo], cert, key))
        rows = []
        for protocol in PROTOCOLS:
            rows += [bulk_row((ours, peer), protocol, bulk, word=word, rounds=rounds) for word in ("down", "up")]
            rows.append(open_row((ours, peer), protocol, echo, rounds=rounds))
            rows.append(echo_row((ours, peer), protocol, echo, rounds=rounds))
            with both_sides(folder / f"memory-{protocol[-1]}", [echo], cert, key) as new:
                rows.append(memory_row(new, protocol, echo))
        return rows


@contextmanager
def both_sides(folder: Path, targets: Sequence[int], cert: Path, key: Path) -> Iterator[tuple[Side, Side]]:
    """Run both proxies."""
    folder.mkdir()
    with proxy(folder, targets, "--cert", cert, "--key", key) as ours, peers(folder, cert, key) as theirs:
        yield Side(ours), Side(*theirs)


@contextmanager
def program(name: str, folder: Path) -> Iterator[servers.Server]:
    """Run a program of this folder."""
    port = servers.free_port()
    with servers.started([sys.executable, "-m", f"bench.{name}", str(port)], port, folder) as server:
        yield server


@contextmanager
def proxy(folder: Path, targets: Sequence[int], *words: str | Path) -> Iterator[servers.Server]:
    """Run ours, which may connect to these ports of this machine."""
    port = servers.free_port()
    limits = [
        word
        for name in ("client-connections", "client-tunnels", "max-tunnels", "max-connections")
        for word in (f"--{name}", str(MANY))
    ]
    reach = [word for target in targets for word in ("--allow-port", str(target))]
    allowed = ["--allow-address", "127.0.0.0/8", "--unreachable", "permit", "--unreachable-hold", "86400"]
    command = [sys.executable, "-m", "headgate", "proxy", "--listen", f"127.0.0.1:{port}", *limits, *reach, *allowed]
    with servers.started([*command, *words], port, folder) as server:
        yield server


@contextmanager
def peers(folder: Path, cert: Path, key: Path) -> Iterator[tuple[servers.Server, ...]]:
    """Run nghttpx in front of squid."""
    options = [f"--frontend-http2-{name}window-size={WINDOW}" for name in ("", "connection-")]
    options += [f"--backend-connections-per-host={MANY}", f"--rlimit-nofile={4 * IDLE}"]
    options += [f"--{name}-read-timeout=1h" for name in ("frontend", "frontend-http2", "backend")]
    with (
        servers.squid(folder, directives=f"max_filedescriptors {4 * IDLE}") as behind,
        servers.nghttpx(folder, backend=behind.port, key=key, certificate=cert, options=options) as front,
    ):
        yield front, behind


def keys(folder: Path) -> tuple[Path, Path]:
    """Create an ECDSA certificate and its key."""
    issued = trustme.CA().issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    return cert, key


def client(protocol: str, what: str, *numbers: int) -> str:
    """Run a client to its end; returns its output."""
    words = [sys.executable, "-m", "bench.tunnel_load", protocol, what, *map(str, numbers)]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout


def bulk_row(sides: tuple[Side, Side], protocol: str, port: int, *, word: str, rounds: int) -> Row:
    """Compare bytes per second through one tunnel."""

    def rate(side: Side) -> float:
        _, told = client(protocol, word, side.port, port, LONGEST_HASHED).split()
        verify("the received bytes are the sent ones", right=told == digest(LONGEST_HASHED))
        before = side.cpu()
        seconds = float(client(protocol, word, side.port, port, BYTES).split()[0])
        side.costs.append((side.cpu() - before) / BYTES * 1e9)
        return BYTES / seconds / 1e6

    found, costs = compared(sides, rate, rounds)
    processor = f"CPU per GB: {costs[0]:.2f} s against {costs[1]:.2f}"
    context = f"{found.ours:.0f} MB/s against {found.peer:.0f}; {processor}"
    return Row(f"{protocol} tunnel in TLS, bulk {word}", PEER, found.ratio, "≥", 1.0, context)


def open_row(sides: tuple[Side, Side], protocol: str, port: int, *, rounds: int) -> Row:
    """Compare the CPU time of a new tunnel, in a TLS connection of its own."""

    def cost(side: Side) -> float:
        before = side.cpu()
        seconds = float(client(protocol, "open", side.port, port, TUNNELS))
        side.costs.append(TUNNELS / seconds)
        return (side.cpu() - before) / TUNNELS * 1e6

    found, rates = compared(sides, cost, rounds)
    context = f"{found.ours:.0f} µs against {found.peer:.0f}; {rates[0]:.0f} per second against {rates[1]:.0f}"
    return Row(f"{protocol} tunnel in TLS, CPU per new one", PEER, found.ratio, "≤", 1.0, context)


def echo_row(sides: tuple[Side, Side], protocol: str, port: int, *, rounds: int) -> Row:
    """Compare the latency that a proxy adds to an echo."""

    def added(side: Side) -> float:
        through = float(client(protocol, "echo", side.port, port, ECHOES))
        return max(1.0, through - float(client("direct", "echo", 0, port, ECHOES)))

    found, _ = compared(sides, added, rounds)
    context = f"{found.ours:.0f} µs against {found.peer:.0f} above the median without a proxy"
    return Row(f"{protocol} tunnel in TLS, median added to an echo", PEER, found.ratio, "≤", 1.0, context)


def memory_row(sides: tuple[Side, Side], protocol: str, port: int) -> Row:
    """Compare the memory of an idle tunnel; it is the same in every round."""
    ours, peer = (kibibytes_each(side, protocol, port) for side in sides)
    context = f"{ours:.1f} KiB against {peer:.1f} KiB resident, {IDLE} of them idle"
    return Row(f"{protocol} tunnel in TLS, memory of an idle one", PEER, ours / peer, "≤", 1.0, context)


def compared(sides: tuple[Side, Side], measure: Callable[[Side], float], rounds: int) -> tuple[Comparison, list[float]]:
    """Compare two sides in turns; also returns the medians of their `costs`."""
    for side in sides:
        side.costs = []
    found = compare(*(partial(measure, side) for side in sides), rounds=rounds)
    return found, [median(side.costs or [0.0]) for side in sides]


def kibibytes_each(side: Side, protocol: str, port: int) -> float:
    """Return the KiB that each of many idle tunnels needs."""
    with holding(side, protocol, port, FIRST):
        before = side.resident()
        with holding(side, protocol, port, IDLE):
            return (side.resident() - before) / IDLE / 1024


@contextmanager
def holding(side: Side, protocol: str, port: int, count: int) -> Iterator[None]:
    """Keep tunnels open, and check at the end that they still are."""
    words = [sys.executable, "-m", "bench.tunnel_load", protocol, "hold", *map(str, (side.port, port, count))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        verify("all tunnels are open", right=holder.stdout.readline().strip() == str(count))
        yield
        verify("each tunnel still works", right=holder.communicate("", timeout=60)[0].strip() == "held")
