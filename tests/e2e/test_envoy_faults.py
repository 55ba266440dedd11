"""Holds of Envoys under load while their master or an Envoy is killed and started again."""

import pytest

from tests.e2e.envoy_load import Plan, Stream, running_load
from tests.e2e.envoy_setup import fleet

pytestmark = [pytest.mark.deep, pytest.mark.needs("envoy", "nginx")]

HOLDING = "1/h burst 1"
HOLDS_AGAIN = 1.0
"""Seconds after the restart of an Envoy until all holds are in force."""


def test_holds_stay_while_the_master_is_killed_and_after_it_has_restarted(tmp_path):
    """A new master knows nothing of them. Other clients are limited again once it is there."""
    with fleet(tmp_path, HOLDING, envoys=2) as system:
        kill, back, end = 3, 9, 24
        streams = [Stream(envoy.port, 50, end=end, client="held") for envoy in system.envoys]
        with running_load(Plan(streams), tmp_path) as load:
            load.wait_until(kill)
            system.master.kill()
            load.wait_until(back)
            system.master.start()
            load.wait_until(end - 3)
            assert system.envoys[0].statuses(1, "new") == [200]
            outcome = load.finish()
        print(outcome.describe())
        assert outcome.failures() == []
        assert outcome.count(0, 1) >= 1
        assert outcome.count(1, end) == 0
        assert system.envoys[0].statuses(2, "new") == [429] * 2


def test_holds_are_in_force_within_a_second_after_an_envoy_has_restarted_under_load(tmp_path):
    with fleet(tmp_path, HOLDING, envoys=2) as system:
        one, two = system.envoys
        restart, end = 3, 10
        streams = [Stream(envoy.port, 50, end=end, client=f"c{number}") for envoy in (one, two) for number in range(4)]
        with running_load(Plan(streams), tmp_path) as load:
            load.wait_until(restart)
            one.kill()
            one.start()
            ready = load.now()
            outcome = load.finish()
        print(outcome.describe())
        assert all(restart - 0.2 <= sample.sent <= ready + 0.2 for sample in outcome.failures())
        assert outcome.count(1, restart) == 0
        assert outcome.count(restart, end, port=one.port) >= 4  # the first of each client
        assert outcome.count(ready + HOLDS_AGAIN, end) == 0
        assert outcome.count(1, end, port=two.port) == 0
