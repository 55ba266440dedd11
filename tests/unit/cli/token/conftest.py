from functools import partial

import pytest


@pytest.fixture
def run(headgate):
    """Run `headgate token`."""
    return partial(headgate, "token")


@pytest.fixture
def key(run, tmp_path):
    """A key file."""
    file = tmp_path / "key.json"
    assert run("new-key", "-o", file).code == 0
    return file


@pytest.fixture
def halves(run, tmp_path):
    """A key file of Ed25519, and one with its public half."""
    site, proxy = tmp_path / "site.json", tmp_path / "proxy.json"
    assert run("new-key", "--algorithm", "ed25519", "-o", site, "--public", proxy).code == 0
    return site, proxy
