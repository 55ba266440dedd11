"""Laws of the event-driven world that hold for any load, station and limit."""

from hypothesis import given
from hypothesis import strategies as st

from lab.events.world import run
from tests.lab.events.worlds import scenario

SERVICES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["constant", "exponential", "lognormal", "bimodal"]),
        "mean": st.sampled_from([0.1, 1.0, 3.0]),
    }
)
STATIONS = st.fixed_dictionaries(
    {
        "service": SERVICES,
        "servers": st.integers(1, 4),
        "knee": st.integers(1, 4),
        "refusal_cost": st.sampled_from([0.0, 0.1, 1.0]),
    }
)
LOADS = st.fixed_dictionaries(
    {
        "name": st.just("open"),
        "arrivals": st.sampled_from(["poisson", "even"]),
        "load": st.lists(st.tuples(st.floats(0, 20), st.floats(0, 4)), min_size=1, max_size=4).map(sorted),
        "timeout": st.sampled_from([0.5, 2.0, 100.0]),
    }
)
CLOSED = st.fixed_dictionaries(
    {
        "name": st.just("closed"),
        "arrivals": st.just("closed"),
        "clients": st.integers(1, 10),
        "think": st.sampled_from([0.1, 1.0]),
        "timeout": st.sampled_from([0.5, 100.0]),
    }
)
CHANGES = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.floats(0, 20),
            "capacity": st.sampled_from([0.5, 1.0, 2.0]),
            "slowdown": st.sampled_from([0.5, 1.0, 5.0]),
            "hang": st.sampled_from([0.0, 0.0, 2.0]),
        }
    ),
    max_size=3,
)


@given(
    station=STATIONS,
    loads=st.tuples(LOADS, CLOSED),
    changes=CHANGES,
    limit=st.integers(1, 6),
    queue=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_a_fixed_limit_and_its_queue_are_never_exceeded(station, loads, changes, limit, queue, seed):
    laws = {"fixed": {"limit": limit, "queue": queue}}
    made = scenario(station=station, loads=loads, changes=changes, laws=laws, seconds=20.0)
    result = run(made, "fixed", seed, record=True)
    values = result.series.values
    assert result.metrics["max_in_flight"] <= limit
    assert max(values["queued"]) <= queue
    # A request waits only while the limit is reached.
    for queued, in_flight in zip(values["queued"], values["max_in_flight"], strict=True):
        assert not queued or in_flight == limit
    assert all(0.0 <= one <= 1.0 + 1e-9 for one in values["utilisation"])


@given(
    station=STATIONS, loads=st.tuples(LOADS, CLOSED), seed=st.integers(0, 99), law=st.sampled_from(["none", "fixed"])
)
def test_each_request_ends_at_most_once(station, loads, seed, law):
    """What is offered has been served, has failed, was refused, is late, or has not ended."""
    metrics = run(scenario(station=station, loads=loads, seconds=20.0), law, seed).metrics
    ended = sum(metrics[name] for name in ("goodput", "failed", "refused", "late"))
    assert ended <= metrics["offered"] + 1e-9
    assert 0.0 <= metrics["success"] <= 1.0
