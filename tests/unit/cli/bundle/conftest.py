from functools import partial

import pytest

from headgate.bundle import BundleWriter

BASE = "https://example.com/"


@pytest.fixture
def run(headgate):
    """Run `headgate bundle`."""
    return partial(headgate, "bundle")


@pytest.fixture
def make(tmp_path):
    """Write a bundle of URL (or tail of one) to payload, or to what `BundleWriter.add` takes; give its path."""

    def make(exchanges, name="made.wbn", **options):
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
