"""Bundles: time to read and to write 10,000 resources in 23 MB, and memory to read one response of a large bundle."""

import io
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.measure import Row, verify
from headgate.bundle import BundleWriter, open_bundle, parse_metadata
from headgate.errors import ResponseError

RESOURCES, SIZE = 10_000, 2_000
LARGE, LARGE_SIZE = 2_000, 100_000
READER = "from bench.bench_bundle import read_one; import sys; read_one(sys.argv[1])"


def exchanges(count: int, size: int) -> list[tuple[str, dict[str, str], bytes]]:
    """Return resources with five fields each, hardly two of them alike."""
    chance = random.Random(count)
    made = []
    for number in range(count):
        headers = {
            "content-type": chance.choice(["text/html", "image/png", "text/javascript"]),
            "cache-control": f"public, max-age={chance.choice([0, 60, 3600, 86400])}",
            "etag": f'"{chance.getrandbits(64):016x}"',
            "last-modified": f"Thu, 20 Nov 2025 {number % 24:02}:{number % 60:02}:00 GMT",
            "x-request-id": f"{chance.getrandbits(64):016x}-{number}",
        }
        made.append((f"https://example.com/{number % 97}/file-{number}.html", headers, chance.randbytes(size)))
    return made


def write(resources: list[tuple[str, dict[str, str], bytes]]) -> bytes:
    """Return the bundle of the resources."""
    target = io.BytesIO()
    with BundleWriter(target, version="b1", primary_url=resources[0][0], manifest_url=resources[0][0]) as writer:
        for url, headers, payload in resources:
            writer.add(url, headers=headers, payload=payload)
    return target.getvalue()


def read_all(content: bytes) -> int:
    """Return the number of responses; each is checked."""
    with open_bundle(content) as bundle:
        return sum(not isinstance(exchange.response, ResponseError) for exchange in bundle.exchanges())


def read_one(path: str) -> None:
    """Read one response of a bundle in a file, and print the memory that the process took at most, in MB."""
    with open_bundle(Path(path)) as bundle:
        url = next(iter(bundle.metadata.requests))
        verify("the response is there", right=len(bundle.response(url).payload) == LARGE_SIZE)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    print(int(status.partition("VmHWM:")[2].split()[0]) / 1_000)  # ru_maxrss would be that of the parent's memory, too


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median time of the rounds."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times[1:]) * 1e3


def run(rounds: int) -> list[Row]:
    """Give a row for each figure; the targets are what decisions promised."""
    resources = exchanges(RESOURCES, SIZE)
    content = write(resources)
    verify("every response is read", right=read_all(content) == RESOURCES)
    rows = [
        Row(what, "none", milliseconds(work, rounds), "≤", target, f"{len(content) / 1e6:.0f} MB")
        for what, work, target in (
            ("ms for the metadata of 10,000 resources", lambda: parse_metadata(content), 60.0),
            ("ms for every response, strict", lambda: read_all(content), 600.0),
            ("ms to create it in memory", lambda: write(resources), 600.0),
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.wbn"
        path.write_bytes(write(exchanges(LARGE, LARGE_SIZE)))
        read = subprocess.run([sys.executable, "-c", READER, str(path)], stdout=subprocess.PIPE, check=True, timeout=60)
    return [*rows, Row("MB to read one response of 200 MB", "none", float(read.stdout), "≤", 40.0, "resident at most")]
