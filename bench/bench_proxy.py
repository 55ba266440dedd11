"""The prefetch proxy's tunnels over HTTP/1.1, against squid and tinyproxy, and its handshakes against nghttpx.

Ours is the whole command, one worker, which decides on every CONNECT: the advice of the target, which has none to give,
is known after the first. Clients and targets are processes of their own, the same ones for all. Each side proves in
each round that what it is measured by is right: the hash of a smaller transfer, the six bytes that come back, the
protocol that was agreed on.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
import trustme

from bench.bulk_target import LONGEST_HASHED, digest
from bench.measure import Absent, Comparison, Row, compare, verify
from tests import servers

__all__ = ["run"]

BYTES = 1 << 30
SECONDS = 3
ECHOES = 20_000
IDLE = 5_000
FIRST = 200
"""Tunnels before those that memory is measured by: what is made once is made by then."""
MANY = 1_000_000


class Side:
    """One proxy: where it listens, and what it costs."""

    def __init__(self, running: servers.Server) -> None:
        self.port = running.port
        self.costs: list[float] = []
        """Seconds of processor time per unit, of each measure since this was emptied."""
        self.process = psutil.Process(running.process.pid)

    def cpu(self) -> float:
        """Give the seconds of processor time it has had."""
        return sum(self.process.cpu_times()[:2])


def run(rounds: int) -> list[Row]:
    """Measure everything there are peers for."""
    missing = [program for program in ("squid", "tinyproxy", "nghttpx") if servers.find_program(program) is None]
    if missing:
        raise Absent(f"{', '.join(missing)} not installed")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        bulk, echo = (running.enter_context(program(name, folder)).port for name in ("bulk_target", "echo_target"))
        ours = Side(running.enter_context(proxy(folder, [bulk, echo], "--plaintext")))
        squid = Side(running.enter_context(servers.squid(folder, directives=f"max_filedescriptors {4 * IDLE}")))
        tinyproxy = Side(running.enter_context(servers.tinyproxy(folder)))
        cert, key = keys(folder)
        inside = Side(running.enter_context(proxy(folder, [echo], "--cert", cert, "--key", key)))
        nghttpx = Side(running.enter_context(servers.nghttpx(folder, backend=squid.port, key=key, certificate=cert)))
        return [
            *(bulk_row(ours, squid, bulk, "squid", word=word, target=1.5, rounds=rounds) for word in ("down", "up")),
            bulk_row(ours, tinyproxy, bulk, "tinyproxy", word="down", target=2.0, rounds=rounds),
            rate_row(
                "tunnels opened per second", "open", (ours, squid), echo, names="squid", target=0.9, rounds=rounds
            ),
            echo_row(ours, squid, echo, rounds=rounds),
            rate_row(
                "TLS connections per second",
                "shake",
                (inside, nghttpx),
                echo,
                names="nghttpx",
                target=0.7,
                rounds=rounds,
            ),
            memory_row(ours, squid, echo),
        ]


@contextmanager
def program(name: str, folder: Path) -> Iterator[servers.Server]:
    """Run a program of this folder."""
    port = servers.free_port()
    with servers.started([sys.executable, "-m", f"bench.{name}", str(port)], port, folder) as server:
        yield server


@contextmanager
def proxy(folder: Path, targets: Sequence[int], *words: str | Path) -> Iterator[servers.Server]:
    """Run ours, which may go to these ports of this machine."""
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


def keys(folder: Path) -> tuple[Path, Path]:
    """Make a certificate, and its key: ECDSA."""
    issued = trustme.CA().issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    return cert, key


def client(what: str, *numbers: int) -> str:
    """Run a client to its end; gives what it says."""
    words = [sys.executable, "-m", "bench.tunnel_load", what, *map(str, numbers)]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout


def compared(sides: tuple[Side, Side], measure: Callable[[Side], float], rounds: int) -> tuple[Comparison, list[float]]:
    """Compare two, in turns; gives what each costs, too: the median of its processor time per unit."""
    for side in sides:
        side.costs = []
    found = compare(*(partial(measure, side) for side in sides), rounds=rounds)
    return found, [sorted(side.costs)[len(side.costs) // 2] for side in sides]


def bulk_row(ours: Side, peer: Side, port: int, name: str, *, word: str, target: float, rounds: int) -> Row:
    """Compare bytes per second through one tunnel."""

    def rate(side: Side) -> float:
        _, told = client(word, side.port, port, LONGEST_HASHED).split()
        verify("what arrives is what was sent", right=told == digest(LONGEST_HASHED))
        before = side.cpu()
        seconds = float(client(word, side.port, port, BYTES).split()[0])
        side.costs.append((side.cpu() - before) / BYTES * 1e9)
        return BYTES / seconds / 1e6

    found, costs = compared((ours, peer), rate, rounds)
    context = (
        f"{found.ours:.0f} MB/s against {found.peer:.0f}; processor per GB: {costs[0]:.2f} s against {costs[1]:.2f}"
    )
    return Row(f"HTTP/1.1 tunnel, bulk {word}", name, found.ratio, "≥", target, context)


def rate_row(
    what: str, load: str, sides: tuple[Side, Side], port: int, *, names: str, target: float, rounds: int
) -> Row:
    """Compare how often something is done per second."""

    def rate(side: Side) -> float:
        before = side.cpu()
        each = float(client(load, side.port, port, SECONDS))
        side.costs.append((side.cpu() - before) / (each * SECONDS) * 1e6)
        return each

    found, costs = compared(sides, rate, rounds)
    context = f"{found.ours:.0f} against {found.peer:.0f}; processor: {costs[0]:.0f} µs each against {costs[1]:.0f}"
    return Row(what, names, found.ratio, "≥", target, context)


def echo_row(ours: Side, peer: Side, port: int, *, rounds: int) -> Row:
    """Compare what a proxy adds to an echo."""

    def added(side: Side) -> float:
        return max(1.0, float(client("echo", side.port, port, ECHOES)) - float(client("echo", 0, port, ECHOES)))

    found = compare(partial(added, ours), partial(added, peer), rounds=rounds)
    context = f"{found.ours:.0f} µs against {found.peer:.0f} above the median without a proxy"
    return Row("p99 added to an echo of six bytes", "squid", found.ratio, "≤", 1.0, context)


def memory_row(ours: Side, peer: Side, port: int) -> Row:
    """Measure the memory of an idle tunnel; it is the same in every round."""
    found = [kibibytes_each(side, port) for side in (ours, peer)]
    context = f"{found[0]:.2f} KiB against {found[1]:.2f} KiB resident"
    return Row(f"KiB a tunnel, {IDLE} of them idle", "none", found[0], "≤", 4.0, context)


def kibibytes_each(side: Side, port: int) -> float:
    """Give the KiB that each of many idle tunnels takes."""
    with holding(side, port, FIRST):
        before = side.process.memory_info().rss
        with holding(side, port, IDLE):
            return float(side.process.memory_info().rss - before) / IDLE / 1024


@contextmanager
def holding(side: Side, port: int, count: int) -> Iterator[None]:
    """Keep tunnels open, which prove in the end that they still are."""
    words = [sys.executable, "-m", "bench.tunnel_load", "hold", str(side.port), str(port), str(count)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        verify("all tunnels are open", right=holder.stdout.readline().strip() == str(count))
        yield
        verify("each tunnel still leads there", right=holder.communicate("", timeout=60)[0].strip() == "held")
