import pytest

from experiments.bus_simulation import (
    Arrival,
    evenly,
    in_bursts,
    largest_excess,
    most_within,
    permitted,
    randomly,
    simulate,
)
from headgate.lab.events.bus import BusSettings
from headgate.limit import Rule
from headgate.limit.history import OfflineGate

ONE = Rule.parse("1/s burst 1")


def at(*times, gatekeepers=1):
    return [Arrival(time, number % gatekeepers) for number, time in enumerate(times)]


@pytest.mark.parametrize("algorithm", ["log", "gcra", "smockron"])
@pytest.mark.parametrize("gatekeepers", [1, 3])
def test_without_a_delay_several_gatekeepers_admit_what_one_gate_admits(algorithm, gatekeepers):
    rule = Rule.parse("10/s burst 5")
    arrivals = [Arrival(number / 32, number % gatekeepers) for number in range(320)]  # exact in binary and in 1/10 s
    outcome = simulate(BusSettings(rule, algorithm, gatekeepers), arrivals)
    verdicts = OfflineGate([rule], algorithm, max_delay=0.0).judge_all(time for time, _ in arrivals)
    assert abs(outcome.rejected - verdicts.rejected) <= 1  # the wire rounds timestamps up to milliseconds
    assert outcome.accepted == 320 - outcome.rejected


def test_requests_within_the_control_delay_are_admitted():
    """The first one's control is obeyed at 0.5: the request at that instant is rejected."""
    bus = BusSettings(ONE, "gcra", gatekeepers=2, control_delay=0.5)
    outcome = simulate(bus, at(0.0, 0.1, 0.499, 0.5, 0.6, gatekeepers=2))
    assert outcome.releases == pytest.approx([0.0, 0.1, 0.499])
    assert (outcome.rejected, outcome.controls) == (2, 2)  # the third control is still on its way


def test_the_debt_of_gcra_outlives_the_control_delay_and_the_hold_of_log_does_not():
    arrivals = at(0.0, 0.1, 0.2, 2.5, 3.1)
    admitted = {
        algorithm: simulate(BusSettings(ONE, algorithm, control_delay=2.0), arrivals).releases
        for algorithm in ("gcra", "log")
    }
    assert admitted["gcra"] == pytest.approx([0.0, 0.1, 0.2, 3.1])
    assert admitted["log"] == pytest.approx([0.0, 0.1, 0.2, 2.5, 3.1])


def test_a_batch_waits_for_a_part_of_the_control_delay():
    """It waits for 0.3 and arrives at 0.4; single messages of the same control delay arrive at 0.25 and 0.45."""
    arrivals = at(0.0, 0.2, 0.41, 0.41)
    assert simulate(BusSettings(ONE, "gcra", control_delay=0.5), arrivals).controls == 1
    batched = simulate(BusSettings(ONE, "gcra", control_delay=0.5, batch_delay=0.3), arrivals)
    assert (batched.controls, batched.rejected) == (2, 0)
    assert simulate(BusSettings(ONE, "gcra", control_delay=0.5, batch_delay=0.3), at(0.0, 0.5)).rejected == 1


def test_delayed_requests_are_forwarded_at_their_release():
    outcome = simulate(BusSettings(ONE, "gcra", max_delay=5.0), at(0.0, 0.5, 0.5, 20.0))
    assert outcome.releases == [0.0, 1.0, 2.0, 20.0]
    assert (outcome.accepted, outcome.delayed) == (2, 2)
    assert outcome.admitted(2.0) == 3


def test_a_gatekeeper_with_its_own_rule_is_exact_at_any_delay():
    bus = BusSettings(ONE, "log", control_delay=10.0, local="own rule")
    assert simulate(bus, at(0.0, 0.1, 1.0, 1.5, 2.5)).releases == [0.0, 1.0, 2.5]


def test_spaced_controls_hold_for_each_request_beyond_the_rule():
    arrivals = at(0.0, 0.4, 0.8, 1.9, 2.9, 3.1)
    outcome = simulate(BusSettings(ONE, "log", control_delay=1.0, local="spaced controls"), arrivals)
    # Controls until 1.5, 1.9 and 2.3 are spaced by a second: until 1.5, 2.5 and 3.5.
    assert outcome.releases == pytest.approx([0.0, 0.4, 0.8])


def test_the_same_seed_gives_the_same_requests():
    assert randomly(50.0, 4.0, 3, seed=1) == randomly(50.0, 4.0, 3, seed=1) != randomly(50.0, 4.0, 3, seed=2)
    assert 150 < len(randomly(50.0, 4.0, 3, seed=1)) < 250
    assert {gatekeeper for _, gatekeeper in randomly(50.0, 4.0, 3, seed=1)} == {0, 1, 2}


def test_loads():
    assert evenly(2.0, 2.0, 2) == [(0.0, 0), (0.5, 1), (1.0, 0), (1.5, 1)]
    assert in_bursts(2.0, 2.0, 2, 2) == [(0.0, 0), (0.0, 1), (1.0, 0), (1.0, 1)]


def test_most_within_counts_both_ends():
    assert most_within(at(0.0, 1.0, 2.0, 2.5, 3.0), 1.0) == 3
    assert most_within(at(0.0, 0.0, 3.0), 0.0) == 2
    assert most_within([], 1.0) == 0


def test_the_largest_excess_is_that_of_the_worst_instant():
    rule = Rule.parse("1/s burst 2")
    assert permitted(rule, 3.0) == 5.0
    assert largest_excess(rule, [9.0, 0.0, 0.0, 1.0, 1.0]) == 1.0
    assert largest_excess(rule, []) == -2.0
