"""Small bundles for tests that serve them."""

from pathlib import Path
from typing import Any

from headgate.bundle.files.writer import BundleWriter

SITE = "https://site.example"
PAGE = b"<!doctype html><title>Home</title>"
HTML = {"content-type": "text/html"}
BIG = b"".join(b"%015d\n" % number for number in range(262_144))
"""4 MiB, no two pieces of which are alike."""


def without_manifest(path: Path) -> Path:
    """Remove the manifest of a b1 bundle, as the published tools do: its section gets an unknown name."""
    source = path.read_bytes()
    path.write_bytes(source.replace(b"\x68manifest", b"\x68manifesx", 1))
    return path


def write(path: Path, *exchanges: dict[str, Any], primary: str = f"{SITE}/", **options: Any) -> Path:
    """Write a bundle of these exchanges, each with its `url` (a path is one of SITE's) and what `add` takes; give its
    path. Where none is given, it has a home page. It is a b1 with a manifest, or, without one, a b2."""
    manifest = {"url": "/manifest", "headers": {"content-type": "application/manifest+json"}, "payload": b"{}"}
    home = {"url": primary, "payload": PAGE}
    options.setdefault("manifest_url", f"{SITE}/manifest")
    options.setdefault("version", "b1" if options["manifest_url"] else "b2")
    with BundleWriter(path, primary_url=primary, **options) as writer:
        for exchange in [
            *(exchanges or [home]),
            *([manifest] if options["manifest_url"] == f"{SITE}/manifest" else []),
        ]:
            given = {"headers": HTML, **exchange}
            url = given.pop("url")
            writer.add(SITE + url if url.startswith("/") else url, **given)
    return path
