"""Small bundles for tests that serve them, and sections that headgate does not write."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.layout import BundleSpec

SITE = "https://site.example"
PAGE = b"<!doctype html><title>Home</title>"
HTML = {"content-type": "text/html"}
BIG = b"".join(map(b"%015d\n".__mod__, range(262_144)))
"""4 MiB without repeated lines."""


def without_manifest(path: Path) -> Path:
    """Remove the manifest of a b1 bundle, as the published tools do: its section gets an unknown name."""
    source = path.read_bytes()
    path.write_bytes(source.replace(b"\x68manifest", b"\x68manifesx", 1))
    return path


def write(path: Path, *exchanges: dict[str, Any], primary: str = f"{SITE}/", **options: Any) -> Path:
    """Write a bundle, and return its path: b1 with a manifest, or b2 if `manifest_url` is None.

    Each exchange has its `url`, which may be a path of `SITE`, and arguments of `BundleWriter.add`. Without exchanges
    the bundle has a home page.
    """
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


def add_sections(writer: BundleWriter, sections: Mapping[str, bytes], order: Sequence[str] = ()) -> None:
    """Give a bundle further sections, before the index, or all of its sections in an order."""
    spec = writer._spec
    items = {name: item for name, item in spec.sections.items() if name != "index"} | dict(sections) | {"index": b""}
    names = [name for name in order if name != "responses"] or items
    writer._spec = BundleSpec(spec.version, spec.primary_url, {name: items[name] for name in names})
