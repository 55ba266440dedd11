import math

import pytest

from headgate.errors import ConfigurationError
from headgate.throttle import Policy


def test_the_defaults_are_the_documents():
    policy = Policy()
    assert (policy.num_errors_to_ignore, policy.initial_backoff, policy.multiply_factor) == (2, 0.7, 1.4)
    assert (policy.jitter_factor, policy.maximum_backoff, policy.entry_lifetime) == (0.1, 900.0, 120.0)
    assert policy.failure_statuses == {500, 503, 509}
    assert (policy.first_delay_is_initial, policy.lower_case_path) == (False, False)


def test_chromium_differs_in_three_things():
    policy = Policy.chromium()
    assert (policy.first_delay_is_initial, policy.lower_case_path, policy.jitter_factor) == (True, True, 0.4)
    assert policy == Policy(first_delay_is_initial=True, lower_case_path=True, jitter_factor=0.4)


@pytest.mark.parametrize(
    ("effective", "draw", "seconds"),
    [
        (-2, 0.0, 0.0),
        (0, 0.5, 0.0),
        (1, 0.0, 0.98),
        (1, 0.5, 0.931),
        (2, 0.0, 1.372),
        (21, 0.0, 819.948_4),
        (22, 0.0, 900.0),
    ],
)
def test_delays_of_the_document(effective, draw, seconds):
    assert Policy().delay(effective, draw) == pytest.approx(seconds)


@pytest.mark.parametrize(("effective", "seconds"), [(0, 0.0), (1, 0.7), (2, 0.98), (3, 1.372), (22, 819.948_4)])
def test_delays_of_chromium_begin_with_the_initial_backoff(effective, seconds):
    assert Policy.chromium().delay(effective, 0.0) == pytest.approx(seconds)


def test_the_jitter_comes_before_the_maximum():
    # b) before c): at 22 the period is 1147.9 s, of which no draw can take enough to be below 900.
    assert Policy().delay(22, 0.999_999) == 900.0
    assert Policy(jitter_factor=0.4).delay(22, 0.999_999) == pytest.approx(1147.928 * 0.6, rel=1e-4)


@pytest.mark.parametrize("effective", [2_000, 2_200, 10**6, 10**300, 10**400])
def test_it_saturates_however_many_failures_there_are(effective):
    assert Policy().delay(effective, 0.5) == 900.0


def test_a_policy_is_hashable_and_stays_as_it_is():
    statuses = {503, 529}
    policy = Policy(failure_statuses=statuses)
    statuses.add(404)
    assert policy.failure_statuses == {503, 529}
    assert len({policy, Policy(failure_statuses=frozenset({503, 529}))}) == 1
    with pytest.raises(AttributeError):
        policy.initial_backoff = 1.0


@pytest.mark.parametrize(("maximum", "lifetime", "kept"), [(900.0, 120.0, 900.0), (60.0, 120.0, 120.0)])
def test_failing_targets_are_kept_for_the_longer_of_two_lives(maximum, lifetime, kept):
    assert Policy(maximum_backoff=maximum, entry_lifetime=lifetime).failing_lifetime == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_errors_to_ignore", -1),
        ("num_errors_to_ignore", 0.5),
        ("initial_backoff", -0.1),
        ("initial_backoff", math.nan),
        ("maximum_backoff", math.inf),
        ("maximum_backoff", -1),
        ("entry_lifetime", math.inf),
        ("multiply_factor", 0.99),
        ("multiply_factor", math.inf),
        ("jitter_factor", -0.1),
        ("jitter_factor", 1.1),
        ("jitter_factor", math.nan),
    ],
)
def test_numbers_that_make_no_policy_are_named(name, value):
    with pytest.raises(ConfigurationError, match=f"^{name} must be"):
        Policy(**{name: value})


def test_the_edges_make_one():
    assert Policy(jitter_factor=1, multiply_factor=1, num_errors_to_ignore=0, entry_lifetime=0).delay(9, 0.0) == 0.7


@pytest.mark.parametrize("effective", [1, 2_200, 10**400])
def test_an_initial_backoff_of_nothing_stays_nothing(effective):
    assert Policy(initial_backoff=0).delay(effective, 0.5) == 0.0


@pytest.mark.parametrize("draw", [0.0, 0.5])
@pytest.mark.parametrize("jitter_factor", [0.0, 0.5])
def test_a_product_too_great_for_a_float_saturates(draw, jitter_factor):
    assert Policy(initial_backoff=100, multiply_factor=1e308, jitter_factor=jitter_factor).delay(1, draw) == 900.0


def test_the_greatest_jitter_takes_all_but_what_the_draw_leaves():
    assert Policy(jitter_factor=1).delay(1, 0.75) == pytest.approx(0.245)
