"""Bundles against the npm registry's `wbn`, which has a process of its own that is as warm as ours.

What is compared is proven equal first: both find the same URLs, statuses, headers and payloads in the bundle, and both
write the same bytes. `wbn` parses a bundle only whole, so its parse is what our metadata alone is held against, and our
metadata with every response strictly checked. The 200 MB rows have no peer: `wbn` holds all of it in memory.
"""

import hashlib
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.bundled_site import LARGE, SMALL, make_site, read_site
from bench.measure import Comparison, Row, compare, verify
from bench.wbn_peer import Wbn, wbn
from headgate.bundle import Bundle, BundleWriter, open_bundle, parse_metadata
from headgate.errors import ResponseError

WARM_UP = 8
MEGABYTE = 1e6


def run(rounds: int) -> list[Row]:
    """Measure both sizes."""
    with tempfile.TemporaryDirectory() as temporary, wbn() as peer:
        folder = Path(temporary)
        return [*small_rows(folder, peer, rounds), *large_rows(folder, peer)]


def small_rows(folder: Path, peer: Wbn, rounds: int) -> list[Row]:
    """Give the rows of 10,000 resources in 23 MB."""
    site = bundled(folder, "small", peer)
    content = (folder / "small.wbn").read_bytes()
    # While it reads, neither side has the site itself in memory, which its collector would have to go over.
    peer.ask("read", path=str(folder / "small.wbn"))
    peer.ask("parse")
    verify("both find the same in the bundle", right=contents(content) == peer.ask("describe"))
    metadata = against(peer, "parse", lambda: parse_metadata(content), rounds)
    with open_bundle(content) as bundle:
        load = against(peer, "parse", lambda: load_all(bundle), rounds)
    whole = against(peer, "parse", lambda: open_and_load_all(content), rounds)
    exchanges = [(url, headers, path.read_bytes()) for url, headers, path in read_site(site)]
    peer.ask("load", folder=str(site))
    verify("both write the same bytes", right=written(exchanges) == content)
    create = against(peer, "create", lambda: written(exchanges), rounds)
    peer.ask("forget")
    return [
        row("bundle, metadata of 10,000 resources", "wbn's parse", metadata, 0.1),
        row("bundle, every response, strict", "wbn's parse", load, 0.6),
        row("bundle, metadata and every response, strict", "wbn's parse", whole, 0.6),
        row("bundle, created from memory", "wbn's createBundle", create, 1.0),
    ]


def against(peer: Wbn, asked: str, ours: Callable[[], object], rounds: int) -> Comparison:
    """Compare the seconds both take, each side being warm."""
    for _ in range(WARM_UP):
        timed(ours)
        peer.ask(asked)
    return compare(lambda: timed(ours), lambda: peer.seconds(asked), rounds=rounds)


def row(what: str, peer: str, measured: Comparison, target: float) -> Row:
    """Give a row of times."""
    context = f"{measured.ours * 1e3:.1f} ms against {measured.peer * 1e3:.1f} ms"
    return Row(what, peer, measured.ratio, "≤", target, context)


def large_rows(folder: Path, peer: Wbn) -> list[Row]:
    """Give the rows of 200 MB; the ratio is the figure itself."""
    site = bundled(folder, "large", peer)
    bundle, ours = folder / "large.wbn", folder / "ours.wbn"
    read = process("read", bundle, site)
    created = process("create", site, ours)
    verify("the response is the one in the site", right=read["sha256"] == digest(site / str(LARGE.exchanges // 2)))
    sizes = sum(path.stat().st_size for _, _, path in read_site(site))
    verify("every further response has its payload", right=read["payload_bytes"] == sizes)
    verify("both write the same 200 MB", right=digest(ours) == digest(bundle))
    memory = "MB resident at most, interpreter included"
    figures = (
        ("bundle, MB to read one response of 200 MB", read["resident"] / MEGABYTE, 40.0, memory),
        (
            "bundle, µs for each further response",
            read["seconds_each"] * 1e6,
            10.0,
            "the median of 2,000, their headers checked",
        ),
        ("bundle, MB to create 200 MB from files", created["resident"] / MEGABYTE, 64.0, memory),
    )
    return [Row(what, "none", figure, "≤", target, context) for what, figure, target, context in figures]


def bundled(folder: Path, name: str, peer: Wbn) -> Path:
    """Make a site and have the peer bundle it, as NAME.wbn."""
    site = folder / name
    site.mkdir()
    make_site({"small": SMALL, "large": LARGE}[name], site)
    peer.ask("load", folder=str(site))
    peer.ask("create")
    peer.ask("write", path=str(folder / f"{name}.wbn"))
    peer.ask("forget")
    return site


def timed(work: Callable[[], object]) -> float:
    """Give the seconds that the work took; what it made is let go of afterwards."""
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    del result
    return seconds


def load_all(bundle: Bundle) -> int:
    """Load every response of an open bundle; give how many there are, none of them refused."""
    count = 0
    for exchange in bundle.exchanges():
        if isinstance(exchange.response, ResponseError):
            raise exchange.response
        count += 1
    return count


def open_and_load_all(content: bytes) -> int:
    """Load the metadata, and then every response."""
    with open_bundle(content) as bundle:
        return load_all(bundle)


def contents(content: bytes) -> dict[str, Any]:
    """Say what is in a bundle, in the peer's words."""
    with open_bundle(content) as bundle:
        responses = []
        for url in bundle.metadata.requests:
            response = bundle.response(url)
            payload = hashlib.sha256(response.payload).hexdigest()
            responses.append([url, response.status, response.stored_headers, payload])
        metadata = bundle.metadata
        return {"primary_url": metadata.primary_url, "manifest_url": metadata.manifest_url, "responses": responses}


def written(exchanges: list[tuple[str, dict[str, str], bytes]]) -> bytes:
    """Create a bundle in memory."""
    target = io.BytesIO()
    first = exchanges[0][0]
    with BundleWriter(target, version="b1", primary_url=first, manifest_url=first) as writer:
        for url, headers, payload in exchanges:
            writer.add(url, headers=headers, payload=payload)
    return target.getvalue()


def process(what: str, *paths: Path) -> dict[str, Any]:
    """Have a fresh process do something with a large bundle."""
    program = [sys.executable, "-m", "bench.bundle_process", what, *map(str, paths)]
    result: dict[str, Any] = json.loads(subprocess.run(program, stdout=subprocess.PIPE, check=True, timeout=120).stdout)
    return result


def digest(path: Path) -> str:
    """Give the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
