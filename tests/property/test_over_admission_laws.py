"""The bounds of docs/scaling.md hold for any load."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from experiments.bus_simulation import Arrival, most_within, simulate
from experiments.excess_bounds import most_admitted
from headgate.lab.events.bus import BusSettings
from headgate.limit import Rule

RULES = st.builds(Rule, st.sampled_from([1, 2, 10, 100]), st.just(1_000), st.sampled_from([1, 2, 3, 10, 50]))
DELAYS = st.sampled_from([0.0, 0.001, 0.005, 0.05, 0.3, 1.0, 3.0])
# Pauses in intervals of the rule: none, short ones, and those at which a hold or a window ends.
PAUSES = st.lists(
    st.tuples(st.sampled_from([0, 0, 0.01, 0.3, 0.9, 1, 1.1, 3, 50]), st.integers(0, 3)), min_size=1, max_size=150
)
_ROUNDING = 1e-9


@pytest.mark.parametrize("algorithm", ["gcra", "smockron", "log"])
@given(rule=RULES, delay=DELAYS, pauses=PAUSES, batched=st.booleans(), delays=st.sampled_from([0.0, 0.5, 5.0]))
def test_admitted_requests_are_within_the_bound(algorithm, rule, delay, pauses, batched, delays):
    """At every instant, for any number of gatekeepers and any distribution of the requests."""
    if algorithm == "log":
        assume(delay < rule.interval)
    time, arrivals = 0.0, []
    for pause, gatekeeper in pauses:
        time += pause * rule.interval
        arrivals.append(Arrival(time, gatekeeper))
    bus = BusSettings(rule, algorithm, 4, delay, batch_delay=min(delay, 0.005) if batched else 0.0, max_delay=delays)
    late = most_within(arrivals, delay)
    start = arrivals[0].time
    for number, release in enumerate(sorted(simulate(bus, arrivals).releases), start=1):
        bound = most_admitted(rule, algorithm, release - start, late=late, control_delay=delay)
        assert number <= bound * (1 + _ROUNDING)


@given(rule=RULES, delay=DELAYS, pauses=PAUSES)
def test_a_client_within_the_rule_is_never_held_under_gcra(rule, delay, pauses):
    """ "No requests will be delayed or rejected that would not have been otherwise" (smockron.txt, Fault-Tolerance)."""
    time, arrivals = 0.0, []
    for pause, gatekeeper in pauses:
        time += (1 + pause) * (rule.interval + 0.001)  # timestamps are rounded up to milliseconds
        arrivals.append(Arrival(time, gatekeeper))
    assert simulate(BusSettings(rule, "gcra", 4, delay), arrivals).accepted == len(arrivals)
