import math

import msgspec
import pytest

from lab.events.world import run
from tests.lab.events.worlds import scenario


def load(**keys):
    return [{"name": "visitors", "arrivals": "even", "load": 0.5, **keys}]


def test_below_its_capacity_a_station_serves_all_requests_at_once():
    """They arrive at 2, 4, 6 and 8, and are served one second each; one at 10 is outside of the run."""
    result = run(scenario(), "none", 0, record=True)
    assert result.metrics["offered"] == result.metrics["goodput"] == 0.4
    assert result.metrics["success"] == 1.0
    assert result.metrics["latency_p50"] == result.metrics["latency_p99"] == 1.0
    assert result.metrics["utilisation"] == result.metrics["in_flight"] == 0.4
    assert result.series.times == [float(second) for second in range(10)]
    assert result.series.values["offered"] == [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    assert result.series.values["goodput"] == [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    assert result.series.values["in_flight"] == result.series.values["utilisation"]
    assert result.series.values["utilisation"] == [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    assert math.isnan(result.series.values["latency_p99"][0])
    assert result.series.values["capacity"] == [1.0] * 10


def test_without_a_limit_an_overload_ends_in_answers_that_are_late():
    """Two arrive per second and one is served: the n-th, sent at n/2, is answered at n + 0.5 and waits n/2 + 0.5."""
    result = run(scenario(loads=load(load=2.0, timeout=2.25)), "none", 0)
    # The first three are answered in time, at 1.5, 2.5 and 3.5; the 4th to 15th have given up by 10.
    assert result.metrics["goodput"] == pytest.approx(0.3)
    assert result.metrics["late"] == pytest.approx(1.2)
    assert result.metrics["success"] == pytest.approx(3 / 15)
    assert result.metrics["utilisation"] == pytest.approx(0.95)  # the server does not notice


def test_a_fixed_limit_keeps_the_answers_in_time():
    """The first begins at 0.5; then each second one of two arrivals takes the server, and the other the queue."""
    fixed = {"fixed": {"limit": 1, "queue": 1}}
    result = run(scenario(loads=load(load=2.0, timeout=2.25), laws=fixed, seconds=100.0), "fixed", 0)
    assert result.metrics["goodput"] == pytest.approx(0.99)
    assert result.metrics["refused"] == pytest.approx(0.98)
    assert result.metrics["late"] == 0.0
    assert result.metrics["max_in_flight"] == 1.0


def test_clients_that_leave_the_queue_of_the_law_give_their_places_back():
    """The one at 0.5 s never ends. Those at 1 and 1.5 wait until 2.25 and 2.75; the one at 2 is refused; and so on."""
    made = scenario(
        loads=load(load=2.0, timeout=1.25), changes=[{"at": 0, "hang": 100}], laws={"fixed": {"limit": 1, "queue": 2}}
    )
    result = run(made, "fixed", 0, record=True)
    assert result.metrics["refused"] == pytest.approx(0.6)  # 2, 3.5, 5, 6.5, 8 and 9.5
    assert max(result.series.values["queued"]) == 2.0


def test_a_refusal_takes_a_share_of_a_service():
    """One request at 2 s, refused for 0.25 s of the server's time while it serves the one at 1 s: 2 to 3 is busy."""
    station = {"servers": 1, "service": {"mean": 1.0}, "refusal_cost": 0.25}
    fixed = {"fixed": {"limit": 1}}
    loads = load(load=[[0, 2.0], [1.75, 2.0], [1.75, 0.0]])  # at 0.5, 1.0 and 1.5
    result = run(scenario(station=station, loads=loads, laws=fixed), "fixed", 0, record=True)
    assert result.metrics["refused"] == pytest.approx(0.1)  # at 1.0; at 1.5 the first has ended
    assert result.metrics["goodput"] == pytest.approx(0.2)
    # The refusal waits until 1.5 and takes 0.25; the second request begins at 1.75 and ends at 2.75.
    assert result.metrics["utilisation"] == pytest.approx(0.225)
    assert result.metrics["latency_p99"] == pytest.approx(1.25)


@pytest.mark.parametrize(("degradation", "expected"), [(0.0, [1.0, 1.0, 1.5, 2.0]), (1.0, [1.0, 1.0, 2.25, 4.0])])
def test_beyond_the_knee_the_service_time_rises(degradation, expected):
    """Four requests at one instant: the third finds 3/2 of the knee in flight, and so on."""
    station = {"knee": 2, "service": {"mean": 1.0}, "degradation": degradation}
    loads = [{"name": "herd", "arrivals": "closed", "clients": 4, "think": 1e6, "pause": 1e6}]
    result = run(scenario(station=station, loads=loads, seconds=5.0, sample=0.125), "none", 0, record=True)
    ended = [round(goodput * 2 * 0.125) for goodput in result.series.values["goodput"]]  # the capacity is 2/s
    assert [time for time, number in zip(result.series.times, ended, strict=True) for _ in range(number)] == expected
    assert result.metrics["max_in_flight"] == 4.0


def test_refusals_at_a_knee_share_it_with_requests():
    """Two are served, four refused for half a second of work each, two at a time.

    The first refusal finds 3/2 of the knee and ends at 0.75, the second finds 4/2 and ends at 1; the third begins at
    0.75 among four and ends at 1.75; the last one begins at 1, when the requests have ended, and ends at 1.5.
    """
    station = {"knee": 2, "service": {"mean": 1.0}, "refusal_cost": 0.5}
    loads = [{"name": "herd", "arrivals": "closed", "clients": 6, "think": 1e6, "pause": 1e6}]
    made = scenario(station=station, loads=loads, laws={"fixed": {"limit": 2}}, seconds=2.0, sample=0.25)
    result = run(made, "fixed", 0, record=True)
    assert result.series.values["utilisation"] == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0]


def test_changes_of_the_station():
    """Half of two servers from 4 s on, twice the service time from 8 s on; as at the start from 12 s on."""
    station = {"servers": 2, "service": {"mean": 1.0}}
    changes = [{"at": 4.0, "capacity": 0.5}, {"at": 8.0, "slowdown": 2.0}, {"at": 12.0}]
    result = run(scenario(station=station, changes=changes, loads=load(load=3.0), seconds=16.0), "none", 0, record=True)
    capacity = result.series.values["capacity"]
    assert capacity == [2.0] * 4 + [1.0] * 4 + [1.0] * 4 + [2.0] * 4
    assert result.series.values["utilisation"][1:] == [1.0] * 15


def test_a_change_comes_before_a_request_of_the_same_instant():
    assert run(scenario(changes=[{"at": 2.0, "hang": 100.0}]), "none", 0).metrics["goodput"] == 0.0


def test_a_station_that_hangs_ends_requests_without_an_answer():
    changes = [{"at": 0.0, "hang": 1.5}]
    result = run(scenario(changes=changes), "none", 0)
    assert result.metrics["failed"] == pytest.approx(0.4)
    assert (result.metrics["goodput"], result.metrics["latency_p50"]) == (0.0, 1.5)


def test_closed_clients_wait_for_their_answers():
    """Each of 4 takes 1 s for the answer and 3 s for thinking: one request per second, which is the capacity/4."""
    loads = [{"name": "users", "arrivals": "closed", "clients": 4, "think": 3.0, "spread": 4.0}]
    result = run(scenario(station={"servers": 4, "service": {"mean": 1.0}}, loads=loads, seconds=2000.0), "none", 1)
    assert result.metrics["goodput"] == pytest.approx(0.25, rel=0.05)
    assert result.metrics["max_in_flight"] <= 4


def test_refused_clients_pause_or_wait_for_retry_after():
    """Nine of ten are refused at 0. They try again after 2 s, or after 1 to 3 s."""
    loads = [{"name": "herd", "arrivals": "closed", "clients": 10, "think": 1e6, "pause": 2.0}]
    station = {"servers": 1, "service": {"mean": 0.5}}
    values = {}
    for retry_after in (0.0, 4.0):
        laws = {"fixed": {"limit": 1, "retry_after": retry_after}}
        values[retry_after] = run(
            scenario(station=station, loads=loads, laws=laws), "fixed", 0, record=True
        ).series.values["offered"]
    assert values[0.0][0] == values[4.0][0] == 5.0
    assert values[0.0][1] > 0.0
    assert sum(values[0.0][1:3]) == 4.5
    assert values[4.0][1:5] == [0.0, 0.0, 0.0, 4.5]


def test_gatekeepers_start_delayed_requests_at_their_release():
    gatekeepers = {"rule": "1/s burst 1", "algorithm": "gcra", "max_delay": 5.0}
    made = scenario(
        policies=["gatekeepers"],
        station={"servers": 10, "service": {"mean": 1.0}},
        loads=load(load=[[0, 0.2], [1.75, 0.2], [1.75, 0.0]]),  # at 0.5, 1 and 1.5; released at 0.5, 1.5 and 2.5
        laws={"gatekeepers": gatekeepers},
        sample=0.5,
    )
    values = run(made, "gatekeepers", 0, record=True).series.values
    assert [round(one * 5) for one in values["goodput"]] == [0, 0, 0, 1, 0, 1, 0, 1] + [0] * 12


def test_the_warm_up_is_not_measured_and_is_recorded():
    result = run(scenario(loads=load(load=[[0, 0.5], [5, 0.5], [5, 0.0]]), warmup=6.0), "none", 0, record=True)
    assert result.metrics["offered"] == 0.0
    assert math.isnan(result.metrics["success"])
    assert result.metrics["latency_p99"] == 4.0  # nothing was served in the measured 4 s
    assert sum(result.series.values["offered"]) > 0.0


def test_a_seed_gives_the_same_run_and_the_law_does_not_change_the_arrivals():
    made = scenario(
        loads=load(arrivals="poisson", load=0.9),
        station={"servers": 3, "service": {"kind": "exponential", "mean": 1.0}},
        laws={"fixed": {"limit": 3, "queue": 1}},
        seconds=200.0,
    )
    first, again = (run(made, "none", 7, record=True) for _ in range(2))
    assert msgspec.json.encode(first) == msgspec.json.encode(again)
    assert first.metrics != run(made, "none", 8).metrics
    limited = run(made, "fixed", 7, record=True)
    assert limited.series.values["offered"] == first.series.values["offered"]


def test_requests_of_a_load_cost_what_its_service_says():
    """One server of 1 s for most: at 2 s and so on requests of 1 s, and from 1 s on one of 0.25 s every 5 s."""
    loads = [
        {"name": "cheap", "arrivals": "even", "rate": 0.2, "service": {"mean": 0.25}},
        {"name": "dear", "arrivals": "even", "load": 0.2, "service": {"mean": 2.0}},
    ]
    result = run(scenario(loads=loads, seconds=100.0), "none", 0)
    # Of both loads 19 and 9 requests end within the run: 19 quarters and 9 doubles of a second.
    assert result.metrics["goodput.cheap"] == pytest.approx(0.0475, abs=0.003)
    assert result.metrics["goodput.dear"] == pytest.approx(0.18, abs=0.021)
    assert result.metrics["goodput"] == pytest.approx(result.metrics["utilisation"], abs=0.03)
    assert result.metrics["latency_p50"] <= 0.25 + 2.0
    fixed = run(scenario(loads=loads, seconds=100.0, changes=[{"at": 0, "slowdown": 2.0}]), "none", 0)
    assert fixed.metrics["utilisation"] == pytest.approx(2 * result.metrics["utilisation"], abs=0.05)
