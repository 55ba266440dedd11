from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.origin.bundle.snapshot import BundleSnapshot
from tests import webbundles


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[..., Path]:
    """Return the function that writes a bundle of exchanges, and gives its path."""

    def write(*exchanges: Any, name: str = "site.wbn", **options: Any) -> Path:
        return webbundles.write(tmp_path / name, *exchanges, **options)

    return write


@pytest.fixture
def snapshot(bundle: Callable[..., Path]) -> Callable[..., BundleSnapshot]:
    """Return the function that writes a bundle, and opens it."""

    def opened(*exchanges: Any, profile: Any = "strict", **options: Any) -> BundleSnapshot:
        return BundleSnapshot(bundle(*exchanges, **options), profile=profile)

    return opened
