"""One process that reads or writes a large bundle, for its memory: ``python -m bench.bundle_process read|create …``.

It prints one line of JSON: the most bytes it ever had in memory, the interpreter and all modules included, and what it
did with them.
"""

import hashlib
import json
import sys
import time
from pathlib import Path
from statistics import median


def peak() -> int:
    """Give the most bytes of this process that were ever in memory, as the system counts them."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def read(bundle: str, site: str) -> dict[str, object]:
    """Take the middle response out of a bundle and digest it, then every response once."""
    from headgate.bundle import open_bundle

    urls = [described["url"] for described in json.loads((Path(site) / "exchanges.json").read_text())]
    middle = urls[len(urls) // 2]
    with open_bundle(bundle) as opened:
        digest = hashlib.sha256(opened.response(middle).payload).hexdigest()
        resident = peak()
        lengths = 0
        seconds = []
        for url in urls:
            start = time.perf_counter()
            response = opened.response(url)
            seconds.append(time.perf_counter() - start)
            lengths += len(response.payload)
    return {"resident": resident, "sha256": digest, "seconds_each": median(seconds), "payload_bytes": lengths}


def create(site: str, bundle: str) -> dict[str, object]:
    """Bundle a site from its files."""
    from bench.bundled_site import read_site
    from headgate.bundle import BundleWriter

    start = time.perf_counter()
    exchanges = read_site(Path(site))
    url, headers, payload = next(exchanges)
    with BundleWriter(Path(bundle), version="b1", primary_url=url, manifest_url=url) as writer:
        writer.add(url, headers=headers, payload=payload)
        for url, headers, payload in exchanges:
            writer.add(url, headers=headers, payload=payload)
    return {"seconds": time.perf_counter() - start, "resident": peak()}


if __name__ == "__main__":
    print(json.dumps({"read": read, "create": create}[sys.argv[1]](*sys.argv[2:])))
