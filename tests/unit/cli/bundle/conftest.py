from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.bundle import BundleWriter

BASE = "https://example.com/"


@pytest.fixture
def run(headgate: Callable[..., Any]) -> Callable[..., Any]:
    """Run `headgate bundle`."""
    return partial(headgate, "bundle")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Write a bundle of URL (or tail of one) to payload, or to what `BundleWriter.add` takes; give its path."""

    def make(exchanges: Mapping[str, Any], name: str = "made.wbn", **options: Any) -> Path:
        options = {"version": "b1", "primary_url": BASE, **options}
        if options["version"] != "b2":
            options = {"manifest_url": next(iter(exchanges), BASE), **options}
        path = tmp_path / name
        with BundleWriter(path, **options) as writer:
            for url, found in exchanges.items():
                for added in found if isinstance(found, list) else [found]:
                    added = added if isinstance(added, dict) else {"payload": added}
                    writer.add(url, **{"headers": {"content-type": "text/plain"}, **added})
        return path

    return make
