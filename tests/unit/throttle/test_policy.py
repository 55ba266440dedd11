import math
from dataclasses import replace

import pytest

from headgate.errors import ConfigurationError
from headgate.throttle import Policy
from tests.quotes import quotes


@quotes(
    "anti-ddos-throttling 5",
    "There are two parts to exponential backoff - the backoff algorithm and the backoff policy. The "
    "components of the backoff policy are as follows:",
    "initial_backoff_ms: The initial length of the backoff period. Suggested value: 700 ms.",
    "multiply_factor: The exponential factor that the backoff period is increased by on each successive "
    "failure. Suggested value: 1.4.",
    "jitter_factor: The jitter, or randomization, factor. A factor of 0.1 (10%) will cause the backoff "
    "period to be chosen as a uniform random distribution between 90-100% of the calculated backoff "
    "period. Suggested value: 0.1.",
    "maximum_backoff_ms: The maximum length of the backoff period. Suggested value: 15 minutes.",
    "Which status codes we consider indicators of a server being possibly under a DDoS attack, or at "
    "least benefiting from a reduction in aggregate traffic. Status code 503 MUST be interpreted as an "
    "indicator, and status codes 500 and 509 MAY be interpreted as an indicator, for the following "
    "reasons:",
    "503 is explicitly documented as a temporary state where the server is either overloaded or down for maintenance.",
    "509 is the (non-standard) Bandwidth Limit Exceeded status code, which might indicate DDoS.",
)
def test_the_draft_is_the_document():
    policy = Policy.draft()
    assert (policy.num_errors_to_ignore, policy.initial_backoff, policy.multiply_factor) == (2, 0.7, 1.4)
    assert (policy.jitter_factor, policy.maximum_backoff, policy.entry_lifetime) == (0.1, 900.0, 120.0)
    assert policy.failure_statuses == {500, 503, 509}
    assert (policy.first_delay_is_initial, policy.lower_case_path) == (False, False)
    assert (policy.scope, policy.max_retry_after) == ("path", math.inf)


def test_chromium_differs_in_three_things():
    policy = Policy.chromium()
    assert (policy.first_delay_is_initial, policy.lower_case_path, policy.jitter_factor) == (True, True, 0.4)
    same = replace(policy, first_delay_is_initial=False, lower_case_path=False, jitter_factor=0.1)
    assert same == Policy.draft()


def test_programs_have_the_document_s_numbers_and_more_failures():
    failures = frozenset({429, 500, 502, 503, 504, 509})
    draft = Policy.draft()
    assert Policy() == replace(draft, scope="origin", max_retry_after=86_400, failure_statuses=failures)


DELAYS = [
    (-2, 0.0, 0.0),
    (0, 0.5, 0.0),
    (1, 0.0, 0.98),
    (1, 0.5, 0.931),
    (2, 0.0, 1.372),
    (21, 0.0, 819.948_4),
    (22, 0.0, 900.0),
]


@quotes(
    "anti-ddos-throttling 5",
    "a) delay = initial_backoff_ms*multiply_factor^effective_failure_count",
    "A special case makes delay == 0 for effective_failure_count.",
)
@pytest.mark.parametrize(("effective", "draw", "seconds"), DELAYS)
def test_delays_of_the_document(effective, draw, seconds):
    assert Policy().delay(effective, draw) == pytest.approx(seconds)


@quotes(
    "anti-ddos-throttling 5",
    "b) delay -= rand[0,1) * jitter_factor * delay",
    "c) delay = min(delay, maximum_backoff_ms)",
)
def test_jitter_is_subtracted_before_the_maximum_applies():
    # b) before c): at 22 the period is 1147.9 s, of which no draw can take enough to be below 900.
    assert Policy().delay(22, 0.999_999) == 900.0
    assert Policy(jitter_factor=0.4).delay(22, 0.999_999) == pytest.approx(1147.928 * 0.6, rel=1e-4)


@pytest.mark.parametrize("effective", [2_000, 2_200, 10**6, 10**300, 10**400])
def test_delay_saturates(effective):
    assert Policy().delay(effective, 0.5) == 900.0


def test_policy_is_hashable_and_immutable():
    statuses = {503, 529}
    policy = Policy(failure_statuses=statuses)
    statuses.add(404)
    assert policy.failure_statuses == {503, 529}
    assert len({policy, Policy(failure_statuses=frozenset({503, 529}))}) == 1
    with pytest.raises(AttributeError):
        policy.initial_backoff = 1.0


@pytest.mark.parametrize(("maximum", "lifetime", "kept"), [(900.0, 120.0, 900.0), (60.0, 120.0, 120.0)])
def test_failing_lifetime_is_the_longer_of_two(maximum, lifetime, kept):
    assert Policy(maximum_backoff=maximum, entry_lifetime=lifetime).failing_lifetime == kept


INVALID = [
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
    ("initial_backoff", "1"),
    ("multiply_factor", "1.4"),
    ("jitter_factor", None),
    ("num_errors_to_ignore", True),
    ("failure_statuses", 500),
    ("failure_statuses", "500"),
]


def test_invalid_number_is_refused_with_its_name():
    for name, value in INVALID:
        with pytest.raises(ConfigurationError, match=f"^{name} must be"):
            Policy(**{name: value})


def test_extreme_numbers_are_valid():
    assert Policy(jitter_factor=1, multiply_factor=1, num_errors_to_ignore=0, entry_lifetime=0).delay(9, 0.0) == 0.7


@pytest.mark.parametrize("draw", [0.0, 0.5])
@pytest.mark.parametrize("jitter_factor", [0.0, 0.5])
def test_overflowing_product_saturates(draw, jitter_factor):
    assert Policy(initial_backoff=100, multiply_factor=1e308, jitter_factor=jitter_factor).delay(1, draw) == 900.0
