"""The compiled throttle gives exactly what `Throttle` gives, for any sequence of responses."""

from itertools import accumulate

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.lab.chance import Chance, Purpose
from headgate.lab.kernel import throttle as kernel
from headgate.lab.kernel.chance import streams
from headgate.lab.kernel.compiled import compiled
from headgate.lab.kernel.records import AGENT
from headgate.release import ASAP
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


@compiled
def replay(agent, table, outcomes, instants, results):
    """Write the release times before and after each response, and the failure count after it.

    The compiled throttle forgets an expired target at its next response; until then its count means 0.
    """
    for index in range(outcomes.size):
        results[index, 0] = kernel.release_time(agent[0], instants[index])
        kernel.response_received(agent[0], table, outcomes[index], instants[index])
        results[index, 1] = kernel.release_time(agent[0], instants[index])
        is_expired = instants[index] - agent[0].backoff >= table.lifetime
        results[index, 2] = 0 if is_expired else agent[0].failures


def replay_real(throttle, statuses, instants):
    for status, now in zip(statuses, instants, strict=True):
        before = throttle.release_time(URL, now=now)
        throttle.response_received(URL, status, (), now=now)
        yield [before, throttle.release_time(URL, now=now), throttle.explain(URL, now=now).failures]


@given(policies, st.lists(steps, min_size=1, max_size=60), st.integers(0, 2**64))
@example(SHORT, [(503, 0.0), (503, 0.0), (503, 8.9), (503, 9.0)], 0)
@example(SHORT, [(503, 0.0), (503, 0.0), (503, 0.0), (200, 5.0), (503, 6.0)], 0)
@example(Policy(0, 0.0, 1.0, 0.0, maximum_backoff=0.0, entry_lifetime=0.0), [(500, 0.0), (500, 0.0)], 0)
@example(Policy(multiply_factor=1e200, jitter_factor=0.5), [(503, 1.0)] * 9, 0)
@example(Policy(), [(503, 1.0)] * 60, 0)
@example(Policy.chromium(), [(503, 1e4), (503, 0.0), (503, 0.0), (200, 0.0), (200, 901.0)] * 4, 1)
def test_any_sequence_of_responses_gives_the_same_release_times(policy, responses, seed):
    statuses = [status for status, _ in responses]
    instants = list(accumulate((pause for _, pause in responses), initial=START))[1:]
    agent, results = np.zeros(1, AGENT), np.zeros((len(responses), 3))
    agent["jitters"], agent["backoff"] = streams(seed, Purpose.POLICY, 7, 1), ASAP
    table = kernel.policy_table(policy, len(responses))
    replay(agent, table, np.array([OUTCOMES[status] for status in statuses]), np.array(instants), results)
    throttle = Throttle(policy, draw=Chance(seed).stream(Purpose.POLICY, 7))
    assert results.tolist() == list(replay_real(throttle, statuses, instants))
