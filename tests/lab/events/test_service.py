import math

import pytest

from lab.chance import Chance
from lab.events.service import Service

DRAWS = 20_000


@pytest.mark.parametrize(
    ("service", "deviation"),
    [
        (Service(kind="constant", mean=0.2), 0.0),
        (Service(kind="exponential", mean=0.2), 0.2),
        (Service(kind="lognormal", mean=0.2, sigma=0.5), 0.2 * math.sqrt(math.exp(0.25) - 1)),
        # A tenth takes ten times as long as the others: fast 0.2/1.9, slow 2/1.9.
        (Service(kind="bimodal", mean=0.2), 9 * 0.2 / 1.9 * 0.3),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_each_distribution_has_its_mean_and_deviation(service, deviation):
    following = service.sampler(Chance(1).stream("service"))
    times = [following() for _ in range(DRAWS)]
    mean = math.fsum(times) / DRAWS
    assert mean == pytest.approx(0.2, rel=0.03)
    assert math.sqrt(math.fsum((time - mean) ** 2 for time in times) / DRAWS) == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("draw", [0.0, 1.0 - 2.0**-53])
@pytest.mark.parametrize("kind", ["exponential", "lognormal"])
def test_the_extreme_draws_give_finite_times(kind, draw):
    assert 0.0 <= Service(kind=kind).sampler(lambda: draw)() < math.inf
