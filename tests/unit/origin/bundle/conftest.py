from pathlib import Path

import pytest

from headgate.origin.bundle.snapshot import BundleSnapshot
from tests import webbundles


@pytest.fixture
def bundle(tmp_path):
    """Return the function that writes a bundle of exchanges, and gives its path."""

    def write(*exchanges, name="site.wbn", **options) -> Path:
        return webbundles.write(tmp_path / name, *exchanges, **options)

    return write


@pytest.fixture
def snapshot(bundle):
    """Return the function that writes a bundle, and opens it."""

    def opened(*exchanges, profile="strict", **options) -> BundleSnapshot:
        return BundleSnapshot(bundle(*exchanges, **options), profile=profile)

    return opened
