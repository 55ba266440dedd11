"""headgate.cli.bundle.source_options: bundles at a URL."""

import pytest

from tests.bundle_site import honest, serving

BASE = "https://example.com/"


@pytest.fixture
def site(make):
    return make({BASE: b"home", BASE + "large": b"x" * 300_000, BASE + "last": b"last"})


def test_commands_fetch_the_bundle_once(run, site, tmp_path):
    with serving(honest(site.read_bytes())) as server:
        assert run("info", server.url, "--json").json == run("info", site, "--json").json
        assert run("get", server.url, "/last").out == b"last"
        assert run("list", server.url, "--json").objects == run("list", site, "--json").objects
        assert run("check", server.url).code == 0
        assert run("convert", server.url, "--version", "b2", "-o", tmp_path / "new.wbn").code == 0
        assert len(server.requests) == 5


@pytest.mark.parametrize("command", ["info", "list"])
def test_bundles_served_as_another_type_need_profile_compat(run, site, command):
    with serving(honest(site.read_bytes(), Content_Type="application/octet-stream")) as server:
        result = run(command, server.url)
        assert (result.code, result.out) == (1, b"")
        assert "expected Content-Type application/webbundle, got 'application/octet-stream'" in result.err
        assert run(command, server.url, "--profile", "compat").code == 0
