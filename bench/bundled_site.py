"""A web site to bundle, the same in every run: exchanges as a crawl finds them, their payloads in files.

The description, which both peers read, is `exchanges.json` beside the payloads.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

KINDS = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "png": "image/png",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "jpg": "image/jpeg",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
    "txt": "text/plain",
}


FOLDERS = ["assets", "img", "static/js", "2019/07", "wp-content/uploads", "api/v1", "en", "de", "blog", "fonts", "a"]
TAILS = ["", ".min", "-%C3%A9t%C3%A9", "_large", "@2x", ",v2", "%20copy"]
QUERIES = ["", "", "", "?v={digest}", "?ver=5.2.{number}", "?w=640&h=480&q=75", "?_={number}&lang=en%2DGB"]
ETAGS = [
    '"{digest}"',
    'W/"{digest}"',
    '"{size:x}-{modified:x}"',
    '"{digest}{digest}"',
    '"{modified:x}"',
    'W/"{size:x}-{digest}"',
]
AGES = [0, 60, 300, 600, 3_600, 86_400, 604_800, 31_536_000]
CACHE_CONTROLS = [
    "public, max-age={age}",
    "max-age={age}",
    "public, max-age={age}, immutable",
    "max-age={age}, must-revalidate",
    "no-cache",
    "s-maxage={age}, max-age=0, stale-while-revalidate=60",
]
OTHERS = {
    "accept-ranges": (0.5, ["bytes"]),
    "access-control-allow-origin": (0.3, ["*", "https://example.com"]),
    "content-language": (0.05, ["en", "de", "fr-CA"]),
    "content-security-policy": (0.1, ["default-src 'self'; img-src *; script-src 'nonce-{digest}'"]),
    "expires": (0.2, ["Thu, 09 Jul 2020 12:00:00 GMT", "0", "-1"]),
    "link": (0.05, ["</main-{digest}.css>; rel=preload; as=style"]),
    "server": (
        0.6,
        ["nginx", "nginx/1.17.1", "cloudflare", "Apache/2.4.38 (Debian)", "AmazonS3", "ECS (fcn/41{number})"],
    ),
    "timing-allow-origin": (0.1, ["*"]),
    "vary": (0.4, ["Accept-Encoding", "Origin, Accept-Encoding", "Accept"]),
    "via": (0.1, ["1.1 varnish", "1.1 {digest}.cloudfront.net (CloudFront)"]),
    "x-amz-request-id": (0.1, ["{digest}"]),
    "x-cache": (0.2, ["HIT", "MISS", "HIT from cloudfront", "HIT, MISS"]),
    "x-content-type-options": (0.4, ["nosniff"]),
    "x-request-id": (0.1, ["{digest}-{number}"]),
}
"""Names with the share of responses that have them, and their values."""


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
        exchanges.append(exchange(number, size, chance))
        (folder / str(number)).write_bytes(chance.randbytes(size))
    (folder / "exchanges.json").write_text(json.dumps(exchanges))


def exchange(number: int, size: int, chance: random.Random) -> dict[str, Any]:
    """Describe one exchange: a URL and headers such as a crawl of many servers finds, hardly two of them alike."""
    extension = chance.choice(list(KINDS))
    digest = f"{chance.getrandbits(64):016x}"
    folders = "/".join(chance.choice(FOLDERS) for _ in range(chance.randint(0, 3)))
    modified = 1_500_000_000 + chance.randrange(60_000_000)
    headers = {
        "content-type": KINDS[extension],
        "content-length": str(size),
        "last-modified": formatdate(modified, usegmt=True),
        "date": formatdate(1_562_673_600 + number // 50, usegmt=True),
        "etag": chance.choice(ETAGS).format(digest=digest, size=size, modified=modified),
        "cache-control": chance.choice(CACHE_CONTROLS).format(age=chance.choice(AGES)),
    }
    for name, (share, values) in OTHERS.items():
        if chance.random() < share:
            headers[name] = chance.choice(values).format(digest=digest, number=number)
    left_out = {name for name in ("etag", "last-modified", "date", "content-length") if chance.random() < 0.15}
    name = f"file-{number}{chance.choice(TAILS)}.{extension}"
    query = chance.choice(QUERIES).format(digest=digest[:8], number=number)
    return {
        "url": f"https://example.com/{folders}{'/' if folders else ''}{name}{query}",
        "headers": {name: headers[name] for name in sorted(headers) if name not in left_out},
    }


def read_site(folder: Path) -> Iterator[tuple[str, dict[str, str], Path]]:
    """Yield each exchange's URL, headers and payload."""
    for number, described in enumerate(json.loads((folder / "exchanges.json").read_text())):
        yield described["url"], described["headers"], folder / str(number)
