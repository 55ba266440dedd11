import msgspec
import pytest

from lab.rates.settings import RateScenario
from lab.rates.world import run


def scenario(**keys):
    """Ten times the capacity of 1,000 requests per second; change what a test is about."""
    document = {
        "description": "A test.",
        "world": "rates",
        "law": "history",
        "capacity": 1_000.0,
        "ticks": 200,
        "agents": [{"count": 10, "demand": 10.0}],
        **keys,
    }
    made = msgspec.convert(document, RateScenario)
    made.check()
    return made


def agents(**keys):
    return [{"count": 10, "demand": 10.0, **keys}]


def mean(run_, signal, start=0, end=None):
    values = run_.series.values[signal][start:end]
    return sum(values) / len(values)


def test_load_is_the_demand_multiplied_by_the_fraction_that_agents_have_fetched():
    result = run(scenario(), "history", 0, record=True)
    assert mean(result, "load", 0, 5) > 9
    assert mean(result, "load", 100) == pytest.approx(0.97, abs=0.03)
    assert mean(result, "fraction", 100) == pytest.approx(0.097, abs=0.003)
    assert mean(result, "demand") == 10.0
    assert result.series.times[:3] == [0.0, 10.0, 20.0]
    assert result.metrics["load"] == pytest.approx(mean(result, "load"))


def test_metrics_leave_out_the_warmup():
    result = run(scenario(warmup=100), "history", 0)
    assert result.metrics["load"] == pytest.approx(0.97, abs=0.03)
    assert result.series.values == {}


def test_same_seed_gives_the_same_run_and_another_seed_does_not():
    assert run(scenario(), "history", 3) == run(scenario(), "history", 3)
    assert run(scenario(), "history", 3) != run(scenario(), "history", 4)


def test_without_a_law_the_load_is_the_demand():
    result = run(scenario(), "none", 0)
    assert result.metrics["load"] == pytest.approx(10.0, rel=0.01)
    assert result.metrics["goodput"] == 1.0


@pytest.mark.parametrize(
    ("keys", "load"),
    [({"obeys": False}, 10.0), ({"fetches": "never"}, 10.0), ({"lost": 1.0}, 10.0), ({"zipf": 0.5}, 0.97)],
)
def test_agents_differ_in_what_they_fetch_and_obey(keys, load):
    result = run(scenario(agents=agents(**keys)), "history", 0, record=True)
    assert mean(result, "load", 120) == pytest.approx(load, rel=0.06)


def test_signals_are_multiples_of_the_present_capacity():
    result = run(
        scenario(changes=[[0, 1.0], [1000, 1.0], [1000, 0.5]], agents=agents(demand=0.6)), "none", 0, record=True
    )
    assert mean(result, "demand", 0, 100) == pytest.approx(0.6)
    assert mean(result, "demand", 100) == pytest.approx(1.2)
    assert mean(result, "goodput", 100) == 1.0
    assert mean(result, "served", 0, 100) == pytest.approx(1.0, rel=0.02)


def test_people_are_counted_and_not_controlled():
    result = run(scenario(people=0.4), "history", 0, record=True)
    assert mean(result, "agents_load", 120) == pytest.approx(0.57, abs=0.03)
    assert mean(result, "load", 120) == pytest.approx(0.97, abs=0.03)


def test_groups_of_one_entry_share_its_fraction_and_classes_have_their_own():
    groups = [
        {"name": "first", "count": 2, "demand": 2.0},
        {"name": "second", "count": 2, "demand": 2.0},
        {"name": "small", "entry": "SmallBot", "count": 2, "demand": 0.1},
    ]
    result = run(scenario(agents=groups), "history", 0, record=True)
    assert mean(result, "*_fraction", 120) == pytest.approx(0.87 / 4, rel=0.05)
    assert mean(result, "SmallBot_fraction", 120) == 1.0
    assert mean(result, "first_load", 120) == pytest.approx(mean(result, "second_load", 120), rel=0.05)


def test_restarted_law_continues_with_its_entries():
    result = run(scenario(restart=1_200.0, ticks=300), "history", 0, record=True)
    assert max(result.series.values["load"][120:]) < 1.1


def test_restarted_law_can_start_with_wrong_entries():
    result = run(scenario(restart=1_200.0, restart_error=4.0, ticks=300), "none", 0, record=True)
    assert result.series.values["fraction"][130] == 1.0  # four times 1 is 1
    result = run(scenario(restart=1_200.0, restart_error=4.0, ticks=130), "history", 0, record=True)
    assert result.series.values["fraction"][121] == pytest.approx(4 * 0.097, rel=0.05)


def test_agent_after_a_lost_fetch_obeys_what_it_fetched_before_or_nothing():
    asked = {}
    for after_loss in ("previous", "nothing"):
        group = agents(lost=0.3, after_loss=after_loss, count=200, demand=2.0)
        values = run(scenario(ticks=200, agents=group), "history", 0, record=True)
        asked[after_loss] = mean(values, "load", 120) / (2.0 * mean(values, "fraction", 120))
    assert asked["previous"] == pytest.approx(1.0, abs=0.02)
    assert asked["nothing"] > 1.03  # one in 24 agents waits for its next fetch, and sends twice as much
