import pytest

from headgate.lab.results import NO_SERIES, Run
from headgate.lab.scenario_file import find, read_scenario
from headgate.lab.summary import attack

WITHOUT = {
    "overloaded_ticks": 300.0,
    "max_requests": 50.0,
    "client_success": 0.2,
    "client_blocked": 0.0,
    "attacker_success": 0.1,
    "attacker_blocked": 0.0,
}
BETTER = WITHOUT | {
    "overloaded_ticks": 299.0,
    "max_requests": 49.0,
    "client_success": 0.3,
    "client_blocked": 0.1,
    "attacker_blocked": 0.2,
}


@pytest.mark.parametrize(
    ("changed", "in_order"),
    [
        ({}, 1.0),
        ({"overloaded_ticks": 300.0}, 0.0),
        ({"max_requests": 50.0}, 0.0),
        ({"client_success": 0.2}, 0.0),
        ({"client_blocked": 0.2}, 0.0),
    ],
)
def test_a_seed_is_in_order_only_if_all_four_directions_hold_strictly(changed, in_order):
    runs = {
        "none": [Run("none", 0, WITHOUT, NO_SERIES)],
        "draft": [Run("draft", 0, BETTER | changed, NO_SERIES)],
    }
    metrics = attack(read_scenario(find("attack")), runs)
    assert (metrics["none"]["seeds_in_order"], metrics["draft"]["seeds_in_order"]) == (0.0, in_order)
