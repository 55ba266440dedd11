"""Two Envoys under steady load: each gets its share of the rule, whatever happens to loads, master and Envoys."""

import pytest

from tests.e2e.envoy_load import Plan, Stream, running_load
from tests.e2e.envoy_setup import fleet

pytestmark = [pytest.mark.deep, pytest.mark.needs("envoy", "nginx")]

RULE = "500/s burst 50"
LARGE, SMALL = 600, 200


def test_both_sides_together_get_the_rule_and_the_smaller_side_its_demand(tmp_path):
    with fleet(tmp_path, RULE, envoys=2) as system:
        one, two = (envoy.port for envoy in system.envoys)
        swap, end = 24, 42
        streams = [
            Stream(one, LARGE, begin=0, end=swap, client="c"),
            Stream(two, SMALL, begin=0, end=swap, client="c"),
            Stream(one, SMALL, begin=swap, end=end, client="c"),
            Stream(two, LARGE, begin=swap, end=end, client="c"),
        ]
        with running_load(Plan(streams), tmp_path) as load:
            outcome = load.finish()
        print(outcome.describe())
        assert outcome.failures() == []
        assert 455 <= outcome.rate(12, swap) <= 520
        assert outcome.rate(12, swap, port=two) >= 180
        assert outcome.rate(swap + 8, swap + 16) >= 440
        assert system.are_alive()


def test_a_smaller_load_that_begins_later_is_admitted_from_its_first_second(tmp_path):
    with fleet(tmp_path, RULE, envoys=2) as system:
        one, two = (envoy.port for envoy in system.envoys)
        begin, end = 13, 32
        streams = [Stream(one, LARGE, end=end, client="c"), Stream(two, SMALL, begin=begin, end=end, client="c")]
        with running_load(Plan(streams), tmp_path) as load:
            outcome = load.finish()
        print(outcome.describe())
        assert outcome.failures() == []
        assert min(outcome.each_second(begin, end, port=two)) >= 150
        assert outcome.rate(begin + 12, end, port=two) >= 180
        assert 455 <= outcome.rate(begin + 12, end) <= 520


def test_all_requests_pass_after_the_master_was_killed_and_the_rule_holds_once_it_is_back(tmp_path):
    with fleet(tmp_path, RULE, envoys=2) as system:
        one, two = (envoy.port for envoy in system.envoys)
        kill, back, end = 12, 28, 48
        streams = [Stream(one, LARGE, end=end, client="c"), Stream(two, SMALL, end=end, client="c")]
        with running_load(Plan(streams), tmp_path) as load:
            load.wait_until(kill)
            system.master.kill()
            load.wait_until(back)
            system.master.start()
            outcome = load.finish()
        print(outcome.describe())
        assert outcome.failures() == []
        assert outcome.rate(kill + 12, back) == LARGE + SMALL
        assert 455 <= outcome.rate(back + 12, end) <= 520
        assert system.are_alive()
