"""Random numbers of a simulated world: one stream for each purpose and agent.

A stream depends on its seed, purpose and agent alone, so agents that draw more often do not change what others draw:
every policy meets the same world ("common random numbers"), and an array of states repeats the same numbers.

The generator is splitmix64: a state of 64 bits to which `GAMMA` is added for each draw, and a function that mixes its
bits. All sums and products are modulo 2**64.
"""

import enum
import hashlib
import math
from collections.abc import Callable
from typing import Final, TypeAlias

Draw: TypeAlias = Callable[[], float]
"""A source of random numbers from [0, 1)."""

MASK: Final = (1 << 64) - 1
GAMMA: Final = 0x9E3779B97F4A7C15
FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
SECOND_FACTOR: Final = 0x94D049BB133111EB
UNIT: Final = 2.0**-53
"""The step between two draws: the upper 53 bits of a mixed state are multiplied by it."""


class Purpose(enum.IntEnum):
    """What the draws of a stream decide; numbers, because arrays use them."""

    BEHAVIOUR = 1
    """When an agent sends requests, and how long it waits."""
    POLICY = 2
    """The jitter of an agent's policy; the number is that of the first agent that shares the policy."""
    ORIGIN = 3
    """Which requests an origin serves, and which of its answers are errors; the number is that of the origin."""
    GATE = 4
    """What a gate before an origin draws; the number is that of the origin."""


def mix(state: int) -> int:
    """Return a state with its bits mixed: the 64 bits from which a number is made."""
    state = ((state ^ (state >> 30)) * FIRST_FACTOR) & MASK
    state = ((state ^ (state >> 27)) * SECOND_FACTOR) & MASK
    return state ^ (state >> 31)


class Chance:
    """The source of all streams of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        """The seed."""

    def state(self, purpose: int | str, agent: int = 0) -> int:
        """Return the state with which the stream of a purpose and an agent begins; text stands for its hash.

        `mix(mix(mix(seed + GAMMA) + purpose + GAMMA) + agent + GAMMA)`
        """
        if isinstance(purpose, str):
            purpose = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
        state = 0
        for part in (self.seed, purpose, agent):
            state = mix((state + part + GAMMA) & MASK)
        return state

    def stream(self, purpose: int | str, agent: int = 0) -> Draw:
        """Return the stream of a purpose and an agent: a function that returns its next number from [0, 1)."""
        state = self.state(purpose, agent)

        def draw() -> float:
            nonlocal state
            state = (state + GAMMA) & MASK
            # `mix`, written out: a call would take a third of a draw.
            bits = ((state ^ (state >> 30)) * FIRST_FACTOR) & MASK
            bits = ((bits ^ (bits >> 27)) * SECOND_FACTOR) & MASK
            return ((bits ^ (bits >> 31)) >> 11) * UNIT

        return draw


def exponential(mean: float, draw: Draw) -> float:
    """Return a number from an exponential distribution; draws one number."""
    return -mean * math.log(1.0 - draw())
