"""The policies draft and chromium are the real throttle."""

from types import SimpleNamespace

import pytest

from headgate.lab.policies.throttle import Chromium, Draft
from headgate.throttle import Policy, Throttle

NOW = 2.0**30
URL = "http://site.example/resource"
STEPS = [(503, ()), (500, ()), (503, ()), (503, ()), (200, (("Retry-After", "30"),)), (502, ()), (509, ()), (200, ())]


@pytest.mark.parametrize(("kind", "policy"), [(Draft, Policy()), (Chromium, Policy.chromium())])
def test_the_release_is_that_of_a_throttle_that_counts_the_same_responses(kind, policy):
    agent = kind(None, SimpleNamespace(url=URL), lambda: 0.5)
    throttle = Throttle(policy, draw=lambda: 0.5)
    releases = []
    for second, (status, headers) in enumerate(STEPS):
        now = NOW + second
        agent.received(status, headers, now=now)
        throttle.response_received(URL, status, headers, now=now)
        assert agent.release(now=now) == throttle.release_time(URL, now=now)
        releases.append(agent.release(now=now) > now)
    assert releases == [False, False, True, True, True, True, True, True]
    assert agent.pause(3, now=NOW) is None


def test_chromium_waits_less_after_the_first_failures_and_with_more_jitter():
    def waits(kind, draw):
        agent = kind(None, SimpleNamespace(url=URL), lambda: draw)
        for _ in range(3):
            agent.received(503, (), now=NOW)
        return agent.release(now=NOW) - NOW

    assert waits(Draft, 0.0) == pytest.approx(0.98, abs=1e-6)
    assert waits(Draft, 0.5) == pytest.approx(0.98 * 0.95, abs=1e-6)
    assert waits(Chromium, 0.0) == pytest.approx(0.7, abs=1e-6)
    assert waits(Chromium, 0.5) == pytest.approx(0.7 * 0.8, abs=1e-6)
