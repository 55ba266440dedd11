"""A real Envoy whose quotas a master serves: bursts, holds, expiry, and configurations that Envoy accepts."""

import subprocess

import pytest

from headgate.config import Address
from headgate.origin.sidecar.envoy_conf import configuration
from headgate.origin.sidecar.site import Site
from tests import servers
from tests.e2e.envoy_setup import fleet

pytestmark = pytest.mark.needs("envoy", "nginx")

ADMITTED, REJECTED = 200, 429


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"identify": "header:X-Api-Key"},
        {"listen": Address("*", 8080), "origin": "http://origin.example", "rlqs": Address("master.example", 10_006)},
        {"listen": Address("::1", 8080), "origin": "http://[::1]:8000", "rlqs": Address("::1", 10_006)},
        {"domain": "a\"b\\c: 'd' # {é😀%REQ(x)%} ${e}"},
    ],
    ids=["addresses", "header", "names", "ipv6", "domain"],
)
def test_envoy_accepts_the_configuration(tmp_path, changes):
    site = {"listen": Address("127.0.0.1", 8080), "origin": "http://127.0.0.1:8000", "domain": "api"} | changes
    file = tmp_path / "envoy.yaml"
    file.write_text(configuration(Site(**site)))
    command = [servers.find_program("envoy"), "--mode", "validate", "-c", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=servers.PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert f"configuration '{file}' OK" in done.stdout
    assert "work-in-progress" not in done.stderr


def test_requests_pass_without_a_quota_service(tmp_path):
    with fleet(tmp_path, "1/h burst 1") as system:
        (envoy,) = system.envoys
        system.master.kill()
        assert envoy.statuses(5, "early") == [ADMITTED] * 5
