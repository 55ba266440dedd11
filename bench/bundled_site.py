"""A web site to bundle, the same in every run: exchanges of the kind that sites have, their payloads in files.

The description, which both peers read, is `exchanges.json` beside the payloads.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["LARGE", "SMALL", "Site", "make_site", "read_site"]

KINDS = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "png": "image/png",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
}


@dataclass(frozen=True)
class Site:
    """How large a site is to be."""

    exchanges: int
    payload_bytes: int


SMALL = Site(10_000, 20_700_000)
"""A bundle of 10,000 resources in 23 MB, URLs and headers included."""
LARGE = Site(2_000, 200_000_000)
"""A bundle of 200 MB."""


def make_site(site: Site, folder: Path) -> None:
    """Write the payloads and their description."""
    chance = random.Random(site.exchanges)
    weights = [chance.lognormvariate(0, 1) for _ in range(site.exchanges)]
    each = site.payload_bytes / sum(weights)
    exchanges = []
    for number, weight in enumerate(weights):
        size = round(each * weight)
        exchanges.append(exchange(number, size))
        (folder / str(number)).write_bytes(chance.randbytes(size))
    (folder / "exchanges.json").write_text(json.dumps(exchanges))


def exchange(number: int, size: int) -> dict[str, Any]:
    """Describe one exchange: a URL with a digest in it and a version, and five headers."""
    extension = list(KINDS)[number % len(KINDS)]
    digest = f"{number * 0x9E3779B1 & 0xFFFFFFFF:08x}"
    return {
        "url": f"https://example.com/assets/{digest}/file-{number}.{extension}?v={number % 7}",
        "headers": {
            "content-type": KINDS[extension],
            "etag": f'"{digest}"',
            "cache-control": "public, max-age=31536000, immutable",
            "last-modified": "Tue, 09 Jul 2019 12:00:00 GMT",
            "content-length": str(size),
        },
    }


def read_site(folder: Path) -> Iterator[tuple[str, dict[str, str], Path]]:
    """Yield each exchange's URL, headers and payload."""
    for number, described in enumerate(json.loads((folder / "exchanges.json").read_text())):
        yield described["url"], described["headers"], folder / str(number)
