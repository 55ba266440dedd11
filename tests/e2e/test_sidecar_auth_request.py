"""nginx without Lua as a gatekeeper: it asks the sidecar before each request."""

import json
from contextlib import ExitStack

import pytest

from tests.e2e.auth_request_setup import System

pytestmark = pytest.mark.needs("nginx")

RULE = "1/h burst 3"


@pytest.fixture
def system(tmp_path):
    """Make a system with a rule; it ends with the test."""
    with ExitStack() as stack:
        yield lambda rule=RULE, *options, **more: System(stack, tmp_path, rule, *options, **more)


def test_a_burst_is_rejected_by_the_rule_of_the_master(system):
    running = system()
    assert running.nginx.statuses(3) == {200: 3}
    running.until_rejected()
    accepted = len(running.seen)
    assert running.nginx.statuses(20) == {503: 20}
    assert len(running.seen) == accepted
    running.sidecar.until(lambda: running.sidecar.totals("api")[2] >= 21, "accounting of rejections")
    assert running.sidecar.totals("api")[0] == accepted


def test_rejection_has_its_time_policies_and_reason(system, tmp_path):
    (tmp_path / "headgate.toml").write_text('[[domain]]\nname = "api"\nrules = ["1/h burst 3", "10/s"]\n')
    running = system(RULE, "--config", "headgate.toml")
    running.until_rejected()
    for accept, media_type in (
        ("text/html", "text/plain; charset=utf-8"),
        ("application/json", "application/problem+json"),
    ):
        answer = running.nginx.get(Accept=accept)
        assert (answer.status, answer.headers.get_all("Content-Type")) == (503, [media_type])
        seconds = int(answer.headers["Retry-After"])
        assert 3_590 <= seconds <= 3_600
        assert answer.headers["RateLimit"] == f'"api";r=0;t={seconds}'
        assert answer.headers["RateLimit-Policy"] == '"api";q=3;w=10800, "api/2";q=10;w=1'
        assert answer.headers["Cache-Control"] == "no-store"
        text = f"Requests for 'api' come faster than its rule allows; this one would be accepted in {seconds} s."
        if accept == "text/html":
            assert answer.body.decode() == f"Too many requests. {text}\n"
        else:
            assert json.loads(answer.body)["detail"] == text
