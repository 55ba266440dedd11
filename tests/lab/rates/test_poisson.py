import math

import pytest

from lab.chance import Chance
from lab.rates.poisson import poisson


@pytest.mark.parametrize("mean", [0.1, 1.0, 9.5, 29.9, 30.1, 1_000.0])
def test_mean_and_variance_are_the_mean(mean):
    draw = Chance(1).stream("test")
    numbers = [poisson(mean, draw) for _ in range(20_000)]
    average = sum(numbers) / len(numbers)
    variance = sum((number - average) ** 2 for number in numbers) / len(numbers)
    assert average == pytest.approx(mean, abs=4 * math.sqrt(mean / 20_000))
    assert variance == pytest.approx(mean, rel=0.06)


def test_mean_of_zero_gives_no_request():
    assert poisson(0.0, lambda: 0.999999) == 0


def test_largest_draw_ends():
    assert poisson(1.0, lambda: math.nextafter(1.0, 0.0)) < 301
    assert poisson(1e6, lambda: math.nextafter(1.0, 0.0)) > 0
