"""When a limit that grows at the start is too high: no more throughput, and most responses are slower."""

import pytest

from headgate.limit.concurrency.learned.growth import Growth
from headgate.limit.concurrency.learned.measurement import Measurement, Window


def round_of(*, in_flight: float, rate: int, slow: float = 0.0) -> Measurement:
    """Return a round of one second."""
    measurement = Measurement()
    latencies = {"": (in_flight, rate)}
    measurement.add(Window(1.0, rate, in_flight, 1.0, 0, round(slow * rate), 0.0, latencies))
    return measurement


@pytest.mark.parametrize(
    ("in_flight", "rate", "slow", "follows"),
    [
        pytest.param(80, 200, 0.9, True, id="throughput"),
        pytest.param(80, 100, 0.9, False, id="queue"),
        pytest.param(80, 100, 0.4, True, id="short-responses-end-first"),
        pytest.param(55, 100, 0.9, True, id="demand"),
    ],
)
def test_a_limit_is_too_high_if_a_round_has_no_more_throughput_and_most_of_it_is_slower(in_flight, rate, slow, follows):
    growth = Growth()
    assert not growth.has_begun
    assert growth.follows(round_of(in_flight=40, rate=100))
    assert growth.slow_latency == 1.25 * 40 / 100
    assert growth.follows(round_of(in_flight=in_flight, rate=rate, slow=slow)) == follows


def test_a_round_is_compared_with_the_last_one_that_had_fewer_requests_in_flight():
    growth = Growth()
    for in_flight, rate in [(40, 100), (80, 200), (90, 200), (160, 400)]:
        assert growth.follows(round_of(in_flight=in_flight, rate=rate, slow=1.0))
    assert growth.slow_latency == 1.25 * 160 / 400
    assert not growth.follows(round_of(in_flight=320, rate=400, slow=1.0))
