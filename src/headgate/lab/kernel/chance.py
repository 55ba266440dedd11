"""The streams of all agents as numbers: the arithmetic of `headgate.lab.chance`, compiled.

A stream is its state, a number of 64 bits. All sums and products are modulo 2**64.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from headgate.lab import chance
from headgate.lab.kernel.compiled import compiled

# Unsigned, because numba makes a float of the sum of an unsigned and a signed number.
_GAMMA: Final = np.uint64(chance.GAMMA)
_FIRST_FACTOR: Final = np.uint64(chance.FIRST_FACTOR)
_SECOND_FACTOR: Final = np.uint64(chance.SECOND_FACTOR)
_11, _27, _30, _31 = (np.uint64(bits) for bits in (11, 27, 30, 31))


def streams(seed: int, purpose: int, first: int, count: int) -> NDArray[np.uint64]:
    """Return the states with which the streams of a purpose begin, for `count` agents from the agent `first` on."""
    states = np.arange(first, first + count, dtype=np.uint64)
    _begin(states, np.uint64(seed & chance.MASK), np.uint64(purpose))
    return states


@compiled
def next_state(state: np.uint64) -> np.uint64:
    """Return the state of a stream after one draw more."""
    return state + _GAMMA


@compiled
def number(state: np.uint64) -> float:
    """Return the number from [0, 1) that the draw which led to this state gives."""
    return float(_mix(state) >> _11) * chance.UNIT


@compiled
def _mix(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> _30)) * _FIRST_FACTOR
    state = (state ^ (state >> _27)) * _SECOND_FACTOR
    return state ^ (state >> _31)


@compiled
def _begin(agents: NDArray[np.uint64], seed: np.uint64, purpose: np.uint64) -> None:
    """Replace each agent by the state with which its stream begins."""
    common = _mix(_mix(seed + _GAMMA) + purpose + _GAMMA)
    for index in range(agents.size):
        agents[index] = _mix(common + agents[index] + _GAMMA)
