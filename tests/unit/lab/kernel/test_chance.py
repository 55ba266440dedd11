"""Streams in arrays draw the same numbers as those of `Chance`."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.lab.chance import Chance
from headgate.lab.kernel.chance import next_state, number, streams


@given(
    seed=st.integers(-(2**70), 2**70),
    purpose=st.integers(0, 2**63),
    first=st.integers(0, 2**62),
    count=st.integers(1, 4),
)
def test_arrays_draw_what_streams_draw(seed, purpose, first, count):
    states = streams(seed, purpose, first, count)
    expected = [Chance(seed).stream(purpose, agent) for agent in range(first, first + count)]
    for _ in range(3):
        for agent, stream in enumerate(expected):
            states[agent] = next_state(states[agent])
            assert number(states[agent]) == stream()
