"""Bulk through one tunnel of HTTP/2 inside TLS, against nghttpx in front of squid: bytes per second, each way.

One client and one target for both, each a process of its own, and no slower than what is measured has to be: they move
bytes past any library. nghttpx is given windows as wide as ours. Each side proves first, by the hash of a smaller
transfer, that what arrives is what was sent; the timed ones are counted.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
import trustme

from bench.bulk_target import LONGEST_HASHED, digest
from bench.measure import Absent, Comparison, Row, compare, verify
from tests import servers

__all__ = ["run"]

BYTES = 1 << 29
WINDOW = 1 << 20


def run(rounds: int) -> list[Row]:
    """Measure both ways."""
    for program in ("nghttpx", "squid"):
        if servers.find_program(program) is None:
            raise Absent(f"{program} is not installed")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        cert, key = keys(folder)
        target = servers.free_port()
        running.enter_context(program_running("bulk_target", target, folder))
        ours = Side(running.enter_context(program_running("http2_proxy", servers.free_port(), folder, cert, key)))
        peer = Side(*running.enter_context(peers(folder, cert, key)))
        return [row(ours, peer, target, word=word, rounds=rounds) for word in ("down", "up")]


@contextmanager
def peers(folder: Path, cert: Path, key: Path) -> Iterator[tuple[servers.Server, ...]]:
    """Run nghttpx in front of squid."""
    wide = [f"--frontend-http2-{name}window-size={WINDOW}" for name in ("", "connection-")]
    with (
        servers.squid(folder) as behind,
        servers.nghttpx(folder, backend=behind.port, key=key, certificate=cert, options=wide) as front,
    ):
        yield front, behind


class Side:
    """One proxy, of one process or two: the first is what clients connect to."""

    def __init__(self, *running: servers.Server) -> None:
        self.port = running[0].port
        self.costs: list[float] = []
        self._processes = [psutil.Process(server.process.pid) for server in running]

    def cpu(self) -> float:
        """Give the seconds of processor time it has had."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)


def keys(folder: Path) -> tuple[Path, Path]:
    """Make a certificate, and its key: ECDSA."""
    issued = trustme.CA().issue_cert("localhost", "127.0.0.1")
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return cert, key


@contextmanager
def program_running(name: str, port: int, folder: Path, *words: Path) -> Iterator[servers.Server]:
    """Run a program of this folder."""
    with servers.started([sys.executable, "-m", f"bench.{name}", str(port), *words], port, folder) as server:
        yield server


def moved(side: Side, target: int, word: str, count: int) -> tuple[float, str]:
    """Move bytes; returns the seconds it took, and the hash that arrived."""
    words = [str(side.port), str(target), word, str(count)]
    command = [sys.executable, "-m", "bench.http2_bulk", *words]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    seconds, told = output.split()
    return float(seconds), told


def rate(side: Side, target: int, word: str) -> float:
    """Give the megabytes per second of one transfer."""
    _, told = moved(side, target, word, LONGEST_HASHED)
    verify("what arrives is what was sent", right=told == digest(LONGEST_HASHED))
    before = side.cpu()
    seconds, _ = moved(side, target, word, BYTES)
    side.costs.append((side.cpu() - before) / BYTES * 1e9)
    return BYTES / seconds / 1e6


def row(ours: Side, peer: Side, target: int, *, word: str, rounds: int) -> Row:
    """Compare the two, in turns."""
    ours.costs, peer.costs = [], []
    measures: list[Callable[[], float]] = [partial(rate, side, target, word) for side in (ours, peer)]
    found: Comparison = compare(*measures, rounds=rounds)
    costs = [sorted(side.costs)[rounds // 2] for side in (ours, peer)]
    context = (
        f"{found.ours:.0f} MB/s against {found.peer:.0f} MB/s; "
        f"processor time per GB: {costs[0]:.2f} s against {costs[1]:.2f} s"
    )
    return Row(f"HTTP/2 tunnel, bulk {word}", "nghttpx before squid", found.ratio, "≥", 0.5, context)
