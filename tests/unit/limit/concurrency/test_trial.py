"""How a trial is judged: by the throughput at two limits."""

import pytest

from headgate.limit.concurrency.learned.measurement import Measurement, Window
from headgate.limit.concurrency.learned.trial import Trial, requests_needed


def measured(in_flight: float, rate: float) -> Measurement:
    """Return what is measured in ten seconds of responses whose baseline is 0.1 s."""
    measurement = Measurement()
    count = round(10 * rate)
    measurement.add(Window(10.0, count, in_flight, 1.0, 0, 0, 0.1 * count, {"": (10 * in_flight, count)}))
    return measurement


@pytest.mark.parametrize(
    ("in_flight", "rate", "followed"),
    [
        (24.0, 120.0, True),
        (24.0, 111.0, True),  # by more than half
        (24.0, 109.0, False),
        (24.0, 90.0, False),
        (10.0, 60.0, True),
        (10.0, 80.0, False),
        (10.0, 110.0, False),
        (20.9, 150.0, None),
        (19.1, 50.0, None),
    ],
)
def test_throughput_follows_if_it_changes_by_half_as_much_as_the_requests_in_flight(
    in_flight: float, rate: float, followed: bool | None
) -> None:
    trial = Trial(20.0, measured(20.0, 100.0), 150)
    assert trial.followed(measured(in_flight, rate)) is followed


@pytest.mark.parametrize(("factor", "requests"), [(0.5, 150), (1.4, 353), (1.0 / 1.4, 353), (1.1, 600)])
def test_a_small_change_needs_many_requests(factor: float, requests: int) -> None:
    assert requests_needed(factor) == requests
