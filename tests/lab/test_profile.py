import math

import pytest

from lab.profile import Profile

STEP = [(0.0, 1.0), (10.0, 1.0), (10.0, 4.0)]


def test_values_lie_on_straight_lines_and_hold_beyond_the_points():
    profile = Profile([(10.0, 2.0), (20.0, 4.0)])
    assert [profile.value(time) for time in (0.0, 10.0, 15.0, 20.0, 1e6)] == [2.0, 2.0, 3.0, 4.0, 4.0]


def test_at_a_step_the_value_is_that_after_it():
    assert [Profile(STEP).value(time) for time in (9.999, 10.0)] == [1.0, 4.0]


def test_a_period_repeats_the_points():
    sawtooth = Profile([(0.0, 0.0), (10.0, 5.0)], period=10.0)
    assert [sawtooth.value(time) for time in (0.0, 5.0, 10.0, 12.0, 105.0)] == [0.0, 2.5, 0.0, 1.0, 2.5]


@pytest.mark.parametrize(
    ("profile", "time", "area", "expected"),
    [
        (Profile([(0.0, 2.0)]), 3.0, 1.0, 3.5),
        (Profile(STEP), 9.5, 0.5, 10.0),
        (Profile(STEP), 9.5, 2.5, 10.5),  # half of it until the step
        (Profile([(0.0, 0.0), (10.0, 10.0)]), 0.0, 8.0, 4.0),  # t²/2 = 8
        (Profile([(0.0, 10.0), (10.0, 0.0)]), 0.0, 48.0, 8.0),  # 10 t - t²/2 = 48
        (Profile([(0.0, 10.0), (10.0, 0.0)]), 0.0, 51.0, math.inf),  # there are only 50
        (Profile([(0.0, 0.0), (10.0, 10.0)], period=10.0), 0.0, 58.0, 14.0),  # 50 in the first period
        (Profile([(0.0, 0.0), (5.0, 0.0), (5.0, 1.0)]), 0.0, 1.0, 6.0),
        (Profile([(0.0, 0.0)]), 0.0, 1.0, math.inf),
        (Profile([(0.0, 1e-7)], period=10.0), 0.0, 1.0, 1e7),
        (Profile([(0.0, 1e-300)], period=10.0), 0.0, 1.0, math.inf),
        (Profile([(0.0, 0.0)], period=10.0), 0.0, 1.0, math.inf),
    ],
)
def test_the_instant_at_which_an_area_is_reached(profile, time, area, expected):
    assert profile.after(time, area) == pytest.approx(expected)
