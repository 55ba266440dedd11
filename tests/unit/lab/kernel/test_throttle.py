"""The compiled throttle gives exactly what `Throttle` gives, for any sequence of responses."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.lab.chance import Chance, Purpose
from headgate.lab.kernel import throttle as kernel
from headgate.throttle import Policy, Throttle

URL = "http://origin.example/"
OUTCOMES = {500: kernel.FAILURE, 503: kernel.FAILURE, 200: kernel.SUCCESS, 404: kernel.SUCCESS, 502: kernel.NEITHER}
START = 1_700_000_000.0

policies = st.one_of(
    st.just(Policy()),
    st.just(Policy.chromium()),
    st.builds(
        Policy,
        num_errors_to_ignore=st.integers(0, 4),
        initial_backoff=st.floats(0, 1e3),
        multiply_factor=st.floats(1, 1e200),
        jitter_factor=st.floats(0, 1),
        maximum_backoff=st.floats(0, 1e5),
        entry_lifetime=st.floats(0, 1e4),
        first_delay_is_initial=st.booleans(),
    ),
)
steps = st.tuples(st.sampled_from(sorted(OUTCOMES)), st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 5e3)))

SHORT = Policy(0, 1.0, 1.0, 0.0, maximum_backoff=4.0, entry_lifetime=8.0)
"""Each backoff lasts 1 s, and 8 s after it the target is forgotten."""


@given(policies, st.lists(steps, max_size=60), st.integers(0, 2**64))
@example(Policy(), [(503, 1.0)] * 60, 0)
@example(SHORT, [(503, 0.0), (503, 0.0), (503, 8.9), (503, 9.0)], 0)
@example(SHORT, [(503, 0.0), (503, 0.0), (503, 0.0), (200, 5.0), (503, 6.0)], 0)
@example(Policy(multiply_factor=1e200, jitter_factor=0.5), [(503, 1.0)] * 9, 0)
@example(Policy.chromium(), [(503, 1e4), (503, 0.0), (503, 0.0), (200, 0.0), (200, 901.0)] * 4, 1)
def test_any_sequence_of_responses_gives_the_same_release_times(policy, responses, seed):
    real = Throttle(policy, draw=Chance(seed).stream(Purpose.POLICY, 1))
    arrays, table = kernel.throttle_arrays(seed, 2), kernel.policy_table(policy, len(responses))
    now = START
    for status, pause in responses:
        now += pause
        assert kernel.release_time(arrays, 1, now) == real.release_time(URL, now=now)
        real.response_received(URL, status, (), now=now)
        kernel.response_received(arrays, table, 1, OUTCOMES[status], now)
        assert kernel.release_time(arrays, 1, now) == real.release_time(URL, now=now)
        assert max(int(arrays.counts[1]), 0) == real.explain(URL, now=now).failures
    assert arrays.counts[0] == 0, "another agent's throttle"
    assert arrays.backoffs[0] == -np.inf
