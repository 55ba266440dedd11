"""Two Envoys under steady load: each gets its share of the rule, whatever happens to loads, master and Envoys."""

import pytest

from tests.e2e.envoy_load import Plan, Stream, running_load
from tests.e2e.envoy_setup import fleet

pytestmark = [pytest.mark.deep, pytest.mark.needs("envoy", "nginx")]

RULE = "500/s burst 50"
LARGE, SMALL = 600, 200
ATTEMPTS = 3


def measure(folder, streams, check, fault=None):
    """Send streams to two Envoys while `fault` does what it does; `check` the outcome with the ports of the Envoys.

    A run that fails although the machine stalled during it is repeated: its load was another one.
    """
    for attempt in range(1, ATTEMPTS + 1):
        own = folder / f"attempt-{attempt}"
        own.mkdir()
        with fleet(own, RULE, envoys=2) as system:
            ports = [envoy.port for envoy in system.envoys]
            with running_load(Plan(streams(*ports)), own) as load:
                if fault is not None:
                    fault(system, load)
                outcome = load.finish()
            assert system.are_alive()
        print(outcome.describe())
        try:
            check(outcome, *ports)
        except AssertionError:
            if outcome.is_on_time or attempt == ATTEMPTS:
                raise
        else:
            return


def test_both_sides_together_get_the_rule_and_the_smaller_side_its_demand(tmp_path):
    swap, end = 24, 42

    def streams(one, two):
        return [
            Stream(one, LARGE, begin=0, end=swap, client="c"),
            Stream(two, SMALL, begin=0, end=swap, client="c"),
            Stream(one, SMALL, begin=swap, end=end, client="c"),
            Stream(two, LARGE, begin=swap, end=end, client="c"),
        ]

    def check(outcome, _, two):
        assert outcome.failures() == []
        assert 455 <= outcome.rate(12, swap) <= 520
        assert outcome.rate(12, swap, port=two) >= 180
        assert outcome.rate(swap + 8, swap + 16) >= 440

    measure(tmp_path, streams, check)


def test_a_smaller_load_that_begins_later_is_admitted_from_its_first_second(tmp_path):
    begin, end = 13, 32

    def streams(one, two):
        return [Stream(one, LARGE, end=end, client="c"), Stream(two, SMALL, begin=begin, end=end, client="c")]

    def check(outcome, _, two):
        assert outcome.failures() == []
        assert min(outcome.each_second(begin, end, port=two)) >= 150
        assert outcome.rate(begin + 12, end, port=two) >= 180
        assert 455 <= outcome.rate(begin + 12, end) <= 520

    measure(tmp_path, streams, check)


def both(end):
    return lambda one, two: [Stream(one, LARGE, end, client="c"), Stream(two, SMALL, end, client="c")]


def test_all_requests_pass_while_the_master_is_stopped_and_the_rule_holds_once_it_continues(tmp_path):
    stop, back, end = 10, 28, 48

    def fault(system, load):
        load.wait_until(stop)
        system.master.freeze()
        load.wait_until(back)
        system.master.thaw()

    def check(outcome, *_):
        assert outcome.failures() == []
        assert outcome.rate(stop + 12, back) == LARGE + SMALL
        assert 455 <= outcome.rate(back + 12, end) <= 520

    measure(tmp_path, both(end), check, fault)


def test_the_rule_holds_again_after_an_envoy_has_restarted_under_load(tmp_path):
    restart, end = 12, 40
    ready = []

    def fault(system, load):
        load.wait_until(restart)
        system.envoys[1].restart()
        ready.append(load.now())

    def check(outcome, _, two):
        failed = {(sample.stream, restart - 0.2 <= sample.sent <= ready[-1] + 0.2) for sample in outcome.failures()}
        assert failed <= {(1, True)}
        assert max(outcome.each_second(restart + 1, end)) <= 600
        assert 455 <= outcome.rate(restart + 16, end) <= 520
        assert outcome.rate(restart + 16, end, port=two) >= 180

    measure(tmp_path, both(end), check, fault)
