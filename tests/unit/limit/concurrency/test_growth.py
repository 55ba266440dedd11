"""When a limit that grows at the start is too high: no more throughput, and most responses are slower."""

import pytest

from headgate.limit.concurrency.learned.domain_windows import DomainWindows
from headgate.limit.concurrency.learned.growth import Growth
from headgate.limit.concurrency.learned.law import LimitLaw
from headgate.limit.concurrency.learned.measurement import Measurement, Window
from headgate.limit.concurrency.learned.phases import Phase
from headgate.limit.concurrency.values import ConcurrencySettings, LimitReason


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


@pytest.mark.parametrize(("healthy_latency", "lowers"), [(0.0, False), (0.1, True)])
def test_responses_that_are_slow_for_growth_lower_a_limit_only_with_a_healthy_latency(healthy_latency, lowers):
    """They are counted by the same number: a window may begin in one phase and be measured in the next."""
    law = LimitLaw(ConcurrencySettings(healthy_latency=healthy_latency), DomainWindows())
    law.phase = Phase.STEADY
    for number in range(20):
        law.close_window(Window(0.1, 20, 20.0, 1.0, 0, 20, 4.0, {}), 1.0, lagged=False, now=number / 10)
    assert (law.changes[LimitReason.SLOW] > 0) is lowers
